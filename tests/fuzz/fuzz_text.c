/* Any bytes for a person's eyes: what comes out is printable, and comes out again as it is. */
#include <string.h>

#include "exec.h"
#include "fuzz.h"
#include "spec.h"
#include "text.h"

static void check_printable(const char *data, size_t size)
{
	AUTO_TEXT struct text once = {0};
	AUTO_TEXT struct text twice = {0};

	require(text_append_printable(&once, data, size) == 0, "it can be made printable");
	for (size_t i = 0; i < once.len; i++)
		require((unsigned char)once.data[i] >= ' ' && once.data[i] != 0x7f,
			"no control byte");
	require(text_append_printable(&twice, text_str(&once), once.len) == 0, "and again");
	require(twice.len == once.len && memcmp(text_str(&once), text_str(&twice), once.len) == 0,
		"printable stays as it is");
}

static void check_words(const char *word)
{
	char name[32];
	uint64_t bytes;
	int signo = signal_parse(word);

	if (signo > 0)
		require(signal_parse(signal_name(signo, name, sizeof(name))) == signo,
			"a signal's name names it");
	if (size_parse(word, &bytes) == 0)
		require(word[0] >= '0' && word[0] <= '9', "a size begins with a digit");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_FREE char *word = strndup((const char *)data, size);

	check_printable((const char *)data, size);
	if (word)
		check_words(word);
	return 0;
}
