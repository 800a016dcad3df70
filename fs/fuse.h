/* libfuse, in the one version that is used here. */
#pragma once

#include <fuse3/fuse_lowlevel.h>
