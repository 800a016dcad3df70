// Reads a file to its end the way its first argument says and writes what it got to stdout.
// Modes: readfile, readall, copy, scanner, bufio.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

func read(mode, path string, out io.Writer) error {
	if mode == "readfile" {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	switch mode {
	case "readall":
		data, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	case "copy":
		_, err = io.Copy(out, f)
		return err
	case "scanner":
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fmt.Fprintln(out, lines.Text())
		}
		return lines.Err()
	}
	_, err = bufio.NewReader(f).WriteTo(out)
	return err
}

func main() {
	if len(os.Args) != 3 {
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	err := read(os.Args[1], os.Args[2], out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
