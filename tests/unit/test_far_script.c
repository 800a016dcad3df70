/*
 * The texts for a far shell, run by the shells that can be a /bin/sh: every byte of argv and
 * environment, what is missing, and what is left of the input. What finds and kills is tested on
 * real hosts (tests/test_ssh_host.py).
 */
#include "far_script.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "far_shells.h"

/* Runs a shell as the ready command does, with text as its input; returns its wait status. */
static int run(const struct text *input, struct text *output)
{
	const char *argv[8] = {0};
	size_t count = 0;
	FILE *in = tmpfile();
	FILE *out = tmpfile();
	char buf[4096];
	size_t n;
	int status;
	pid_t pid;

	CHECK(in && out);
	CHECK_INT(fwrite(input->data, 1, input->len, in), input->len);
	rewind(in);
	while (shell[count]) {
		argv[count] = shell[count];
		count++;
	}
	argv[count++] = "-c";
	argv[count] = FAR_READ_LINE;
	pid = fork();
	if (!pid) {
		setenv("UNWANTED", "x", 1);
		dup2(fileno(in), STDIN_FILENO);
		dup2(fileno(out), STDOUT_FILENO);
		dup2(fileno(out), STDERR_FILENO);
		execvp(argv[0], (char **)argv);
		_exit(99);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	rewind(out);
	while ((n = fread(buf, 1, sizeof(buf), out)))
		CHECK_INT(text_append(output, buf, n), 0);
	fclose(in);
	fclose(out);
	return status;
}

/* Runs a spec; checks its exit status, and takes the first line, which is the mark's, off. */
static void check_spec(struct spec *spec, const char *input, int code, const char *tells,
		       const char *wanted, size_t wanted_len)
{
	AUTO_TEXT struct text line = {0};
	AUTO_TEXT struct text output = {0};
	const char *rest;
	int status;

	while (spec->argv[spec->argc])
		spec->argc++;
	CHECK_INT(far_tell(&line, MARK), 0);
	CHECK_INT(far_start(&line, spec), 0);
	CHECK(!memchr(line.data, '\n', line.len - 1));
	CHECK_INT(text_append(&line, input, strlen(input)), 0);
	status = run(&line, &output);
	CHECK(WIFEXITED(status));
	CHECK(strncmp(text_str(&output), MARK " ", 33) == 0);
	CHECK(strncmp(text_str(&output) + 33, tells, strlen(tells)) == 0);
	rest = strchr(text_str(&output), '\n') + 1;
	CHECK_INT(WEXITSTATUS(status), code);
	CHECK_INT(output.len - (size_t)(rest - output.data), wanted_len);
	CHECK(memcmp(rest, wanted, wanted_len) == 0);
}

/* Strings of a spec are not const, though nothing here writes to them. */
#define WORDS(...) ((char **)(const char *[]){__VA_ARGS__, NULL})

static void check_words(char **argv, const char *input, int code, const char *wanted)
{
	struct spec spec = {.argv = argv};

	check_spec(&spec, input, code, "start ", wanted, strlen(wanted));
}

static void fill_every_byte(char *ret)
{
	for (int i = 1; i < 256; i++)
		ret[i - 1] = (char)i;
	ret[255] = '\0';
}

static void test_every_byte(void)
{
	char every[256];
	char **argv = WORDS("printf", "%s", every);
	char **print = WORDS("sh", "-c", "printf %s \"$EVERY\"; echo \"$EMPTY${UNWANTED-unset}\"");
	struct spec_variable env[] = {{(char *)"EVERY", every},
				      {(char *)"EMPTY", (char *)""},
				      {(char *)"UNWANTED", NULL}};
	struct spec spec = {.argv = argv};
	char wanted[300];

	fill_every_byte(every);
	check_spec(&spec, "", 0, "start ", every, 255);
	spec = (struct spec){.argv = print, .env = env, .env_count = 3};
	snprintf(wanted, sizeof(wanted), "%sunset\n", every);
	check_spec(&spec, "", 0, "start ", wanted, strlen(wanted));
}

static void test_program(void)
{
	check_words(WORDS("cat"), "all of\nit", 0, "all of\nit");
	check_words(WORDS("sh", "-c", "exit 7"), "", 7, "");
	check_words(WORDS("nosuch"), "", 127, "spawnfs: nosuch: command not found\n");
	check_words(WORDS("-x"), "", 127, "spawnfs: -x: command not found\n");
	check_words(WORDS(""), "", 127, "spawnfs: : command not found\n");
	check_words(WORDS("/no/such"), "", 127, "spawnfs: /no/such: No such file or directory\n");
	check_words(WORDS("/etc"), "", 126, "spawnfs: /etc: Permission denied\n");
	check_words(WORDS("/etc/passwd"), "", 126, "spawnfs: /etc/passwd: Permission denied\n");
}

static void test_surroundings(void)
{
	struct spec spec = {.argv = WORDS("pwd"), .cwd = (char *)"/usr/bin"};

	check_spec(&spec, "", 0, "start ", "/usr/bin\n", 9);
	spec = (struct spec){.argv = spec.argv, .cwd = (char *)"/no\n'such"};
	check_spec(&spec, "", 1, "cwd ENOENT", "", 0);
	spec = (struct spec){.argv = spec.argv, .cwd = (char *)"/etc/passwd"};
	check_spec(&spec, "", 1, "cwd ENOTDIR", "", 0);
	spec = (struct spec){.argv = WORDS("cat"), .stdin_mode = SPEC_STDIN_NONE};
	check_spec(&spec, "not read", 0, "start ", "", 0);
}

static void check_variable(const char *name, const char *value)
{
	struct spec_variable env = {(char *)name, (char *)value};
	struct spec spec = {.argv = WORDS("printenv", name), .env = &env, .env_count = 1};
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "%s\n", value);
	check_spec(&spec, "", 0, "start ", wanted, strlen(wanted));
}

/* Those that mean something to a shell are the command's all the same, or are refused. */
static void test_variables_of_the_shell(void)
{
	static const char *const fields[] = {"", ":", "0", "1 2", "7", "as"};
	struct spec_variable level = {(char *)"SHLVL", (char *)"many"};
	struct spec_variable number = {(char *)"RANDOM", (char *)"7"};
	struct spec spec = {.argv = WORDS("printenv", "SHLVL"), .env = &level, .env_count = 1};
	bool bash = strcmp(*shell, "bash") == 0;

	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		check_variable("IFS", fields[i]);
	check_variable("SHLVL", "0");
	check_variable("SHLVL", "5");
	check_variable("SHLVL", "999");
	check_variable("LC_ALL", "xx_YY.UTF-8");
	check_variable("TMOUT", "1");
	check_variable("OPTIND", "3");
	check_spec(&spec, "", bash, bash ? "env SHLVL" : "start ", "many\n", bash ? 0 : 5);
	spec = (struct spec){.argv = WORDS("printenv", "RANDOM"), .env = &number, .env_count = 1};
	check_spec(&spec, "", bash, bash ? "env RANDOM" : "start ", "7\n", bash ? 0 : 2);
}

static void check_own(const char *name, const char *value, int err)
{
	struct spec_variable env = {(char *)name, (char *)value};
	struct spec spec = {.env = &env, .env_count = 1};
	AUTO_TEXT struct text why = {0};

	CHECK_INT(far_check(&spec, &why), err);
	CHECK(!err || strstr(text_str(&why), name));
}

static void test_names(void)
{
	check_own("SPAWNFS_EXEC", "x", -EOPNOTSUPP);
	check_own("SPAWNFS_EXEC", NULL, -EOPNOTSUPP);
	check_own("spawnfs_n", "x", -EOPNOTSUPP);
	check_own("SPAWNFS_EXECS", "x", 0);
	check_own("spawnfs", "x", 0);
	CHECK(far_can_set("_a9") && far_can_set("PATH"));
	CHECK(!far_can_set("") && !far_can_set("9a") && !far_can_set("a.b") && !far_can_set("a b"));
}

/* fish takes a backslash for its own in single quotes; csh an exclamation mark and a newline. */
static void test_ready_command(void)
{
	AUTO_TEXT struct text t = {0};

	CHECK_INT(far_ready_command(&t, MARK), 0);
	CHECK(!strpbrk(text_str(&t), "\\!\n"));
}

int main(void)
{
	RUN(test_names);
	RUN(test_ready_command);
	for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
		shell = shells[i];
		printf("%s: ", *shell);
		RUN(test_every_byte);
		RUN(test_program);
		RUN(test_surroundings);
		RUN(test_variables_of_the_shell);
	}
	return 0;
}
