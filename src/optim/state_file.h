/*
 * state_file.h - saves and loads the state of a training: named tensors, whole in one file or cut
 * into shards. A save is either there, whole and checked, or an error that says what is wrong.
 *
 * Gathered, a save is one file, PATH. Sharded, each rank k of n writes its ranges of the tensors to
 * a file of its own, PATH.ID.k-of-n; when all have, one rank writes PATH, which is then an index:
 * it has the checksum of each shard's header, which has those of its data. A file comes to be under
 * a temporary name in the same folder and gets its name when it is on the disk. So PATH always is
 * the last complete save, whatever was interrupted; the shards of the one before are removed after
 * the new PATH is on the disk. Shards whose index was never written stay until someone removes
 * them.
 *
 * Who reads need not know how a save was cut: any range of a tensor is put together from the shards
 * that have part of it. Reading opens and checks only what it needs.
 */
#ifndef DT_OPTIM_STATE_FILE_H
#define DT_OPTIM_STATE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* Which save, and which part of it. */
typedef struct dt_state_save {
    int64_t step;
    uint64_t id;        /* the same on all ranks, another one for each save, as a random number */
    int32_t shard;      /* 0 to num_shards - 1 */
    int32_t num_shards; /* 1: gathered */
} dt_state_save_t;

/* A range of a tensor in memory: to be written, or to be filled in. One tensor may be there in
 * several ranges. */
typedef struct dt_state_tensor {
    const char *name; /* 1 to DTRAIN_NAME_MAX bytes */
    dtrain_dtype_t dtype;
    int32_t ndim;
    const int64_t *shape; /* of the whole tensor */
    int64_t begin, end;   /* the elements in `data`, row-major */
    void *data;           /* only read when it is written to a file */
} dt_state_tensor_t;

/*
 * Writes a gathered save, or one shard. Over all shards of a save the ranges of a tensor have to
 * cover it without overlap; that is checked by who reads. Blocks until the file is on the disk.
 * INVALID_ARGUMENT (names the tensor), FILE (the system's reason), OUT_OF_MEMORY; then what was
 * there before is as it was, unless it was only the folder that failed to reach the disk.
 */
dtrain_status_t dt_state_write(const char *path, const dt_state_save_t *save,
                               const dt_state_tensor_t *tensors, int num_tensors);

/*
 * Completes a sharded save when all its shards are written, seen from here: reads their headers,
 * writes PATH, removes the shards of the save that PATH was before. FILE when a shard is missing,
 * damaged or of another save: then PATH is as it was. `save->shard` is not looked at.
 */
dtrain_status_t dt_state_write_index(const char *path, const dt_state_save_t *save);

typedef struct dt_state dt_state_t;

/* What is known of a tensor in a save; pointers live as long as the dt_state_t. */
typedef struct dt_state_info {
    const char *name;
    dtrain_dtype_t dtype;
    int32_t ndim;
    const int64_t *shape;
} dt_state_info_t;

/*
 * Opens a save and checks all its headers: complete, of one save, every tensor covered exactly
 * once. FILE or OUT_OF_MEMORY. No file stays open.
 */
dtrain_status_t dt_state_open(const char *path, dt_state_t **state);
void dt_state_close(dt_state_t *state); /* NULL is nothing */

int64_t dt_state_step(const dt_state_t *state);
size_t dt_state_num_tensors(const dt_state_t *state);
dt_state_info_t dt_state_info(const dt_state_t *state, size_t index); /* sorted by name */

/*
 * Fills in ranges of tensors. Everything is checked first, the data's checksums included, before
 * anything is written to `data`, at the price of reading twice. FILE (also when a tensor is not in
 * the save, or has another type or shape there) and OUT_OF_MEMORY leave all of `data` as it was,
 * unless a file changes during the call.
 */
dtrain_status_t dt_state_read(const dt_state_t *state, const dt_state_tensor_t *tensors,
                              int num_tensors);

#endif
