import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.channels.FileChannel;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Reads a file to its end the way its first argument says and writes what it got to stdout.
 * Modes: all, stream, string, lines, channel.
 */
public class Reader {
	static void channel(Path path, PrintStream out) throws IOException {
		try (FileChannel c = FileChannel.open(path)) {
			ByteBuffer b = ByteBuffer.allocate(1000);
			while (c.read(b) >= 0) {
				out.write(b.array(), 0, b.position());
				b.clear();
			}
		}
	}

	public static void main(String[] args) throws IOException {
		Path path = Path.of(args[1]);
		PrintStream out = new PrintStream(System.out, false);
		switch (args[0]) {
		case "all":
			out.write(Files.readAllBytes(path));
			break;
		case "stream":
			try (FileInputStream in = new FileInputStream(path.toFile())) {
				out.write(in.readAllBytes());
			}
			break;
		case "string":
			out.print(Files.readString(path));
			break;
		case "lines":
			try (BufferedReader r = Files.newBufferedReader(path)) {
				for (String line; (line = r.readLine()) != null;)
					out.print(line + "\n");
			}
			break;
		case "channel":
			channel(path, out);
			break;
		default:
			throw new IllegalArgumentException(args[0]);
		}
		out.flush();
		if (out.checkError())
			throw new IOException("stdout");
	}
}
