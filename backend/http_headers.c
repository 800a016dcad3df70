/* The headers of a request, in the form libcurl takes. */
#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "http.h"
#include "text.h"

int http_header(struct http_headers *headers, const char *fmt, ...)
{
	AUTO_TEXT struct text line = {0};
	struct curl_slist *list = NULL;
	va_list args;
	int err;

	va_start(args, fmt);
	err = text_vprintf(&line, fmt, args);
	va_end(args);
	if (err == 0)
		list = curl_slist_append(headers->list, text_str(&line));
	text_wipe(&line);
	if (!list)
		return -ENOMEM;
	headers->list = list;
	return 0;
}

void http_headers_done(struct http_headers *headers)
{
	for (struct curl_slist *item = headers->list; item; item = item->next)
		explicit_bzero(item->data, strlen(item->data));
	curl_slist_free_all(headers->list);
	headers->list = NULL;
}
