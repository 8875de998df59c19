// A library needs a source.
#include "tests/torch/headers.h"
