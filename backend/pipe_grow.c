#include "pipe_grow.h"

#include <fcntl.h>

#include "bounds.h"

void pipe_grow(int fd, bool *grown)
{
	if (*grown)
		return;
	*grown = true;
	fcntl(fd, F_SETPIPE_SZ, (int)PIPE_BYTES_GROWN);
}
