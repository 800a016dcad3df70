/*
 * The work that scripts/bench.d/e2b measures, done with plain libcurl: as little as a client of
 * envd can do. Binary protobuf, one connection. Every command prints one number.
 *
 *   e2b_curl stdout BYTES PROGRAM     MB/s of the output of PROGRAM produce BYTES
 *   e2b_curl stdin BYTES PROGRAM      MB/s into PROGRAM consume, in pieces of 64 KiB
 *   e2b_curl exec ROUNDS              median microseconds of /bin/true, start to end
 *
 * The environment: E2B_SANDBOX_URL, E2B_SANDBOX_ID, E2B_ENVD_ACCESS_TOKEN.
 */
#include <curl/curl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE (64 << 10)
#define HEADER 5 /* of an envelope: flags, length */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "e2b_curl: %s\n", what);
	exit(1);
}

/* ---- Protobuf ---- */

struct message {
	uint8_t data[PIECE + 64];
	size_t len;
};

static void put_varint(struct message *m, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		m->data[m->len++] = (uint8_t)(value | 0x80);
	m->data[m->len++] = (uint8_t)value;
}

static void put_bytes(struct message *m, unsigned field, const void *data, size_t len)
{
	put_varint(m, field << 3 | 2);
	put_varint(m, len);
	if (m->len + len > sizeof(m->data))
		die("message too long");
	memcpy(m->data + m->len, data, len);
	m->len += len;
}

static void put_text(struct message *m, unsigned field, const char *text)
{
	put_bytes(m, field, text, strlen(text));
}

/* An envelope with StartRequest{process: {cmd, args}}. */
static void start_request(struct message *ret, const char *const argv[])
{
	struct message config = {.len = 0};
	struct message request = {.len = 0};

	put_text(&config, 1, argv[0]);
	for (size_t i = 1; argv[i]; i++)
		put_text(&config, 2, argv[i]);
	put_bytes(&request, 1, config.data, config.len);
	ret->len = HEADER + request.len;
	memcpy(ret->data, (uint8_t[]){0, 0, 0, (uint8_t)(request.len >> 8), (uint8_t)request.len},
	       HEADER);
	memcpy(ret->data + HEADER, request.data, request.len);
}

/* The process{pid} that unary calls begin with. */
static void put_selector(struct message *m, uint32_t pid)
{
	struct message selector = {.len = 0};

	put_varint(&selector, 1 << 3);
	put_varint(&selector, pid);
	put_bytes(m, 1, selector.data, selector.len);
}

/* ---- Calls ---- */

static CURL *new_call(const char *method, const char *type)
{
	static const char *const names[] = {"E2b-Sandbox-Id", "X-Access-Token"};
	static const char *const variables[] = {"E2B_SANDBOX_ID", "E2B_ENVD_ACCESS_TOKEN"};
	struct curl_slist *headers = NULL;
	CURL *call = curl_easy_init();
	char text[512];

	for (size_t i = 0; i < 2; i++) {
		const char *value = getenv(variables[i]);

		snprintf(text, sizeof(text), "%s: %s", names[i], value ? value : "");
		headers = curl_slist_append(headers, text);
	}
	headers = curl_slist_append(headers, "E2b-Sandbox-Port: 49983");
	headers = curl_slist_append(headers, "Connect-Protocol-Version: 1");
	headers = curl_slist_append(headers, "Expect:");
	snprintf(text, sizeof(text), "Content-Type: %s", type);
	headers = curl_slist_append(headers, text);
	snprintf(text, sizeof(text), "%s/process.Process/%s", getenv("E2B_SANDBOX_URL"), method);
	curl_easy_setopt(call, CURLOPT_URL, text);
	curl_easy_setopt(call, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(call, CURLOPT_FAILONERROR, 1L);
	curl_easy_setopt(call, CURLOPT_BUFFERSIZE, 512L << 10);
	return call;
}

static void perform(CURL *call, const struct message *body)
{
	CURLcode code;

	curl_easy_setopt(call, CURLOPT_POSTFIELDS, body->data);
	curl_easy_setopt(call, CURLOPT_POSTFIELDSIZE, (long)body->len);
	code = curl_easy_perform(call);
	if (code)
		die(curl_easy_strerror(code));
}

/* ---- A stream ---- */

struct stream {
	uint8_t first[16]; /* its first bytes: the start event, with the pid */
	size_t first_len;
	uint64_t len;
	sem_t started; /* posted when they are there */
};

static size_t take(char *data, size_t size, size_t count, void *arg)
{
	struct stream *s = arg;
	size_t len = size * count;
	size_t part = sizeof(s->first) - s->first_len;

	if (part) {
		if (part > len)
			part = len;
		memcpy(s->first + s->first_len, data, part);
		s->first_len += part;
		if (s->first_len > HEADER && s->first_len >= (size_t)HEADER + s->first[4])
			sem_post(&s->started);
	}
	s->len += len;
	return len;
}

/* StartResponse{event{start{pid}}}: tag and length twice, a tag, the number. */
static uint32_t pid_of(const struct stream *s)
{
	const uint8_t *at = s->first + HEADER + 5;
	uint32_t pid = 0;

	for (unsigned shift = 0; shift < 32; shift += 7) {
		pid |= (uint32_t)(*at & 0x7f) << shift;
		if (!(*at++ & 0x80))
			break;
	}
	return pid;
}

static CURL *new_stream(struct stream *s)
{
	CURL *call = new_call("Start", "application/connect+proto");

	curl_easy_setopt(call, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(call, CURLOPT_WRITEDATA, s);
	return call;
}

/* ---- The work ---- */

static void work_stdout(uint64_t bytes, const char *amount, const char *program)
{
	struct message body;
	struct stream s = {.len = 0};
	CURL *call = new_stream(&s);
	double start = now();

	start_request(&body, (const char *const[]){program, "produce", amount, NULL});
	perform(call, &body);
	if (s.len < bytes)
		die("output is missing");
	printf("%.1f\n", (double)bytes / (now() - start) / 1e6);
}

static size_t ignore(char *data, size_t size, size_t count, void *arg)
{
	(void)data;
	(void)arg;
	return size * count;
}

struct consumer {
	struct stream stream;
	const char *program;
};

static void *run_consumer(void *arg)
{
	struct consumer *c = arg;
	struct message body;
	CURL *call = new_stream(&c->stream);

	start_request(&body, (const char *const[]){c->program, "consume", NULL});
	perform(call, &body);
	return NULL;
}

static void send_all(uint32_t pid, uint64_t bytes)
{
	static uint8_t piece[PIECE - 64];
	CURL *call = new_call("SendInput", "application/proto");

	curl_easy_setopt(call, CURLOPT_WRITEFUNCTION, ignore);
	for (uint64_t left = bytes; left;) {
		size_t part = left < sizeof(piece) ? (size_t)left : sizeof(piece);
		struct message body = {.len = 0};
		struct message input = {.len = 0};

		put_selector(&body, pid);
		put_bytes(&input, 1, piece, part);
		put_bytes(&body, 2, input.data, input.len);
		perform(call, &body);
		left -= part;
	}
}

static void work_stdin(uint64_t bytes, const char *program)
{
	struct consumer c = {.program = program};
	struct message end = {.len = 0};
	CURL *call = new_call("CloseStdin", "application/proto");
	pthread_t thread;
	double start = now();

	sem_init(&c.stream.started, 0, 0);
	if (pthread_create(&thread, NULL, run_consumer, &c))
		die("pthread_create");
	sem_wait(&c.stream.started);
	send_all(pid_of(&c.stream), bytes);
	put_selector(&end, pid_of(&c.stream));
	curl_easy_setopt(call, CURLOPT_WRITEFUNCTION, ignore);
	perform(call, &end);
	pthread_join(thread, NULL);
	printf("%.1f\n", (double)bytes / (now() - start) / 1e6);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

static void work_exec(size_t rounds)
{
	double *t = calloc(rounds, sizeof(*t));
	struct message body;
	struct stream s = {.len = 0};
	CURL *call = new_stream(&s);

	if (!t)
		die("no memory");
	start_request(&body, (const char *const[]){"/bin/true", NULL});
	for (size_t i = 0; i < rounds; i++) {
		double start = now();

		perform(call, &body);
		t[i] = now() - start;
	}
	qsort(t, rounds, sizeof(*t), compare);
	printf("%.1f\n", t[rounds / 2] * 1e6);
	free(t);
}

int main(int argc, char *argv[])
{
	uint64_t amount = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

	curl_global_init(CURL_GLOBAL_ALL);
	if (amount && argc == 4 && strcmp(argv[1], "stdout") == 0)
		work_stdout(amount, argv[2], argv[3]);
	else if (amount && argc == 4 && strcmp(argv[1], "stdin") == 0)
		work_stdin(amount, argv[3]);
	else if (amount && argc == 3 && strcmp(argv[1], "exec") == 0)
		work_exec((size_t)amount);
	else
		die("usage: e2b_curl stdout BYTES PROGRAM | stdin BYTES PROGRAM | exec ROUNDS");
	return 0;
}
