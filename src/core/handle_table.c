#include "core/handle_table.h"

#include <pthread.h>
#include <stdio.h>

#include "base/memory.h"

#define SLOT_BITS 20
#define CHUNK_BITS 8
#define CHUNK_SLOTS (1 << CHUNK_BITS)
#define CHUNK_COUNT (1 << (SLOT_BITS - CHUNK_BITS))

typedef struct slot {
    dt_operation_t operation; /* first: an operation's address is its slot's */
    uint64_t generation;      /* [lock] of its next handle */
    uint32_t index;           /* [const] */
    struct slot *next_free;   /* [lock] */
} slot_t;

struct dt_handle_table {
    pthread_mutex_t lock;
    slot_t *_Atomic chunks[CHUNK_COUNT]; /* [atomic] written under the lock, never removed */
    int num_chunks;                      /* [lock] */
    slot_t *free;                        /* [lock] */
    int count;                           /* [lock] slots in use */
    dt_output_t *outputs;                /* [lock] that outlive their handles */
};

static void free_contents(dt_operation_t *operation)
{
    dt_free(operation->error);
    dt_free(operation->splits);
    dt_output_free(operation->owned);
}

dt_handle_table_t *dt_handle_table_create(void)
{
    dt_handle_table_t *table = dt_calloc(1, sizeof *table);
    if (table)
        pthread_mutex_init(&table->lock, NULL);
    return table;
}

void dt_handle_table_free(dt_handle_table_t *table)
{
    if (!table)
        return;
    for (int c = 0; c < table->num_chunks; c++) {
        slot_t *chunk = atomic_load(&table->chunks[c]);
        for (int i = 0; i < CHUNK_SLOTS; i++)
            free_contents(&chunk[i].operation);
        dt_free(chunk);
    }
    dt_output_free(table->outputs);
    pthread_mutex_destroy(&table->lock);
    dt_free(table);
}

/* Adds a chunk of free slots. [lock held] */
static void grow(dt_handle_table_t *table)
{
    if (table->num_chunks == CHUNK_COUNT)
        return;
    slot_t *chunk = dt_calloc(CHUNK_SLOTS, sizeof *chunk);
    if (!chunk)
        return;
    for (int i = CHUNK_SLOTS - 1; i >= 0; i--) {
        chunk[i].index = (uint32_t)(table->num_chunks * CHUNK_SLOTS + i);
        chunk[i].generation = 1;
        chunk[i].next_free = table->free;
        table->free = &chunk[i];
    }
    atomic_store_explicit(&table->chunks[table->num_chunks++], chunk, memory_order_release);
}

dt_operation_t *dt_handle_acquire(dt_handle_table_t *table)
{
    pthread_mutex_lock(&table->lock);
    if (!table->free)
        grow(table);
    slot_t *slot = table->free;
    uint64_t handle = 0;
    if (slot) {
        table->free = slot->next_free;
        table->count++;
        handle = slot->generation++ << SLOT_BITS | slot->index;
    }
    pthread_mutex_unlock(&table->lock);
    if (!slot)
        return NULL;
    dt_operation_t *operation = &slot->operation;
    operation->status = DTRAIN_IN_PROGRESS;
    operation->is_refused = operation->is_agreed = operation->is_withdrawn = 0;
    operation->is_bystander = 0;
    operation->callback = NULL;
    operation->room = operation->out_rows = 0;
    atomic_store_explicit(&operation->done, DT_NOT_DONE, memory_order_relaxed);
    atomic_store_explicit(&operation->handle, handle, memory_order_release);
    return operation;
}

dt_operation_t *dt_handle_find(dt_handle_table_t *table, dtrain_handle_t handle)
{
    uint32_t index = (uint32_t)(handle & ((1u << SLOT_BITS) - 1));
    slot_t *chunk = atomic_load_explicit(&table->chunks[index >> CHUNK_BITS], memory_order_acquire);
    if (handle == 0 || !chunk)
        return NULL;
    dt_operation_t *operation = &chunk[index & (CHUNK_SLOTS - 1)].operation;
    uint64_t current = atomic_load_explicit(&operation->handle, memory_order_acquire);
    return current == handle ? operation : NULL;
}

int dt_handle_result(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle,
                     dtrain_status_t *status, char *text, size_t cap)
{
    pthread_mutex_lock(&table->lock);
    int is_stale = atomic_load(&operation->handle) != handle;
    if (!is_stale) {
        *status = operation->status;
        snprintf(text, cap, "%s", operation->error ? operation->error : "");
    }
    pthread_mutex_unlock(&table->lock);
    return is_stale ? -1 : 0;
}

int dt_handle_output(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle,
                     dt_handle_output_t *output)
{
    pthread_mutex_lock(&table->lock);
    int is_stale = atomic_load(&operation->handle) != handle;
    if (!is_stale) {
        output->signature = operation->signature;
        output->data = operation->out;
        output->rows = operation->out_rows;
    }
    pthread_mutex_unlock(&table->lock);
    return is_stale ? -1 : 0;
}

int dt_handle_splits(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle,
                     int64_t *splits, int n)
{
    pthread_mutex_lock(&table->lock);
    int is_stale = atomic_load(&operation->handle) != handle;
    for (int i = 0; !is_stale && i < n; i++)
        splits[i] = operation->splits[n + i];
    pthread_mutex_unlock(&table->lock);
    return is_stale ? -1 : 0;
}

void dt_handle_finish(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle)
{
    pthread_mutex_lock(&table->lock);
    if (atomic_load(&operation->handle) == handle)
        atomic_store(&operation->done, DT_DONE);
    pthread_mutex_unlock(&table->lock);
}

int dt_handle_release(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle)
{
    slot_t *slot = (slot_t *)operation;
    pthread_mutex_lock(&table->lock);
    int is_stale = atomic_load(&operation->handle) != handle;
    if (!is_stale) {
        atomic_store(&operation->handle, 0);
        /* It failed after data may have begun to move: the world is gone, and peers may not know.
         */
        if (operation->owned && operation->is_agreed && operation->status != DTRAIN_OK) {
            operation->owned->next = table->outputs;
            table->outputs = operation->owned;
            operation->owned = NULL;
        }
        free_contents(operation);
        operation->error = NULL;
        operation->splits = NULL;
        operation->owned = NULL;
        slot->next_free = table->free;
        table->free = slot;
        table->count--;
    }
    pthread_mutex_unlock(&table->lock);
    return is_stale ? -1 : 0;
}

int dt_handle_count(dt_handle_table_t *table)
{
    pthread_mutex_lock(&table->lock);
    int count = table->count;
    pthread_mutex_unlock(&table->lock);
    return count;
}
