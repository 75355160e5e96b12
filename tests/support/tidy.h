/*
 * tidy.h - included before each file of src/ by check_tidy.sh: what the analyzer cannot see across
 * files. An error is an error, and memory is new. dt_free stays unknown to it: it takes counted
 * references and linked lists for uses after free, which the address sanitizer tells apart.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define dt_fail(status, ...) ((void)dt_fail(status, __VA_ARGS__), (status))
#define dt_alloc(bytes) malloc(bytes)
#define dt_calloc(count, bytes) calloc(count, bytes)
#define dt_realloc(old, bytes) realloc(old, bytes)
#define dt_alloc_aligned(align, bytes) aligned_alloc(align, bytes)
#define dt_strdup(text) strdup(text)
