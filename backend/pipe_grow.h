/* A pipe that is full before the other side looks at it goes faster when it is larger. */
#pragma once

#include <stdbool.h>

/*
 * Makes the pipe behind fd PIPE_BYTES_GROWN large, once: *grown says that it was tried. The
 * system may not allow it (pipe-user-pages-soft in pipe(7)): then it stays as it is.
 */
void pipe_grow(int fd, bool *grown);
