/*
 * Any text as a spec. Whatever is accepted can be shown, what is shown is accepted again and
 * shown the same, and a frame finds the same end however the text is cut.
 */
#include <string.h>

#include "fuzz.h"
#include "spec.h"

static struct spec *parse(const char *data, size_t size)
{
	AUTO_TEXT struct text why = {0};
	struct spec *spec = NULL;
	int err = spec_parse(data, size, &spec, &why);

	require((err == 0) == (spec != NULL), "a spec, or an error");
	require((err == 0) == (why.len == 0), "a sentence for each error, and for nothing else");
	return spec;
}

static void check_shown(const char *data, size_t size)
{
	AUTO_TEXT struct text shown = {0};
	AUTO_TEXT struct text again = {0};
	struct spec *spec = parse(data, size);

	if (!spec)
		return;
	require(spec->argc > 0 && spec->argv && !spec->argv[spec->argc], "a command");
	require(spec_print(spec, &shown) == 0, "it can be shown");
	spec_free(spec);
	spec = parse(shown.data, shown.len);
	require(spec != NULL, "what is shown is accepted");
	require(spec_print(spec, &again) == 0, "it can be shown again");
	require(again.len == shown.len && memcmp(again.data, shown.data, shown.len) == 0,
		"it is shown the same");
	spec_free(spec);
}

static void check_frame(const char *data, size_t size)
{
	struct frame whole = {0};
	struct frame cut = {0};
	int whole_err = frame_feed(&whole, data, size, NULL);
	int cut_err = 0;

	for (size_t i = 0; i < size && !cut_err; i++)
		cut_err = frame_feed(&cut, data + i, 1, NULL);
	require(whole_err == cut_err, "the same answer");
	require(whole_err || (whole.complete == cut.complete && whole.kind == cut.kind &&
			      whole.depth == cut.depth),
		"the same frame");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_frame((const char *)data, size);
	check_shown((const char *)data, size);
	return 0;
}
