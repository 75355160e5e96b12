/* saves.h - saves of a small training state in a folder of their own, for tests. */
#ifndef DT_TEST_OPTIM_SAVES_H
#define DT_TEST_OPTIM_SAVES_H

#include "optim/state_file.h"

#define WEIGHTS 1000 /* elements of "weights", float32, 10 × 100 */

/* A folder, and the path of a save in it. */
extern char saves_folder[64];
extern char saves_path[96];

int saves_begin(void **state); /* CMocka's setup and teardown of a test */
int saves_end(void **state);

/* The names of files in the folder: how many contain `part`. */
int saves_count_files(const char *part);

/* The path of the only file whose name contains `part`. */
void saves_find(const char *part, char *path, size_t cap);

/* The whole content of a file, to be freed. */
unsigned char *saves_read(const char *path, size_t *length);
void saves_write(const char *path, const void *bytes, size_t length);

/* Value i of "weights" in the save of a step. */
float saves_weight(int64_t step, int64_t i);

/* Writes shard `shard` of `size`: its part of "weights", and, in shard 0, "rate", a scalar of
 * float64 that is the step, and "sampler", 5 bytes. */
dtrain_status_t saves_write_shard(int64_t step, uint64_t id, int shard, int size);

/* Writes all shards, and the index where there are several. */
void saves_write_all(int64_t step, uint64_t id, int size);

/* Reads everything and compares it; the status of the first call that fails. After a failure
 * the memory that was to be filled in is checked to be untouched. */
dtrain_status_t saves_load(int64_t step);

#endif
