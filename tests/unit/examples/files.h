/* files.h - temporary folders and IDX files, good and damaged, for tests. */
#ifndef TEST_EXAMPLES_FILES_H
#define TEST_EXAMPLES_FILES_H

#include <stddef.h>
#include <stdint.h>

#define FILES_PATH_MAX 512

/* Makes an empty folder. Each test program keeps one, with files that it overwrites. */
void files_begin(void);

/* Removes the folder and what lies in it. */
void files_end(void);

const char *files_folder(void);

/* The path of `name` in the folder; valid until the fourth call after this one. */
const char *files_path(const char *name);

void files_remove(const char *name);

/* Writes bytes as they are. */
void files_write(const char *name, const void *bytes, size_t length);

/* Puts an IDX header for `ndim` extents and `length` bytes of data into `out`: how many bytes. */
size_t files_idx(uint8_t *out, int ndim, const uint32_t *dims, const void *data, size_t length);

/* Compresses into one gzip stream: how many bytes. */
size_t files_gzip(uint8_t *out, size_t capacity, const void *bytes, size_t length);

#endif
