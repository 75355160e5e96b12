#include "core/handle_table.h"

#include <pthread.h>
#include <stdio.h>

#include "base/memory.h"

#define SLOT_BITS 20
#define CHUNK_BITS 8
#define CHUNK_SLOTS (1 << CHUNK_BITS)
#define CHUNK_COUNT (1 << (SLOT_BITS - CHUNK_BITS))

typedef struct slot {
    dt_operation_t operation;   /* first: an operation's address is its slot's */
    uint64_t generation;        /* of its next handle; the taker's alone */
    uint32_t index;             /* [const] */
    _Atomic uint32_t next_free; /* [atomic] index + 1 of the next free slot; 0: none */
} slot_t;

struct dt_handle_table {
    pthread_mutex_t lock;
    slot_t *_Atomic chunks[CHUNK_COUNT]; /* [atomic] written under the lock, never removed */
    int num_chunks;                      /* [lock] */
    /* [atomic] The stack of free slots: index + 1 of its top in the low half. The high half counts
     * changes, so that a top that went and came back is not taken for unchanged. */
    _Atomic uint64_t free;
    _Atomic int count;    /* [atomic] slots in use */
    dt_output_t *outputs; /* [lock] that outlive their handles */
};

static void free_contents(dt_operation_t *operation)
{
    dt_free(operation->error);
    dt_free(operation->splits);
    dt_free(operation->sparse);
    dt_output_free(operation->owned);
    dt_mark_drop(operation->ready);
    dt_mark_drop(atomic_load(&operation->enqueued));
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

static slot_t *slot_at(dt_handle_table_t *table, uint32_t index)
{
    slot_t *chunk = atomic_load_explicit(&table->chunks[index >> CHUNK_BITS], memory_order_acquire);
    return &chunk[index & (CHUNK_SLOTS - 1)];
}

static uint64_t next_top(uint64_t top, uint32_t first)
{
    return ((top >> 32) + 1) << 32 | first;
}

static void push(dt_handle_table_t *table, slot_t *slot)
{
    uint64_t top = atomic_load_explicit(&table->free, memory_order_relaxed);
    do {
        atomic_store_explicit(&slot->next_free, (uint32_t)top, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&table->free, &top,
                                                    next_top(top, slot->index + 1),
                                                    memory_order_release, memory_order_relaxed));
}

/* A free slot, or NULL. What is read of a slot that another thread takes meanwhile is thrown away:
 * then the top has changed. */
static slot_t *pop(dt_handle_table_t *table)
{
    uint64_t top = atomic_load_explicit(&table->free, memory_order_acquire);
    while ((uint32_t)top != 0) {
        slot_t *slot = slot_at(table, (uint32_t)top - 1);
        uint32_t next = atomic_load_explicit(&slot->next_free, memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(&table->free, &top, next_top(top, next),
                                                  memory_order_acquire, memory_order_acquire))
            return slot;
    }
    return NULL;
}

/* Adds a chunk of free slots, unless another thread has meanwhile. NULL when it cannot. */
static slot_t *grow(dt_handle_table_t *table)
{
    pthread_mutex_lock(&table->lock);
    slot_t *slot = pop(table);
    slot_t *chunk = NULL;
    if (!slot && table->num_chunks < CHUNK_COUNT)
        chunk = dt_calloc(CHUNK_SLOTS, sizeof *chunk);
    if (chunk) {
        int first = table->num_chunks++ * CHUNK_SLOTS;
        for (int i = 0; i < CHUNK_SLOTS; i++) {
            chunk[i].index = (uint32_t)(first + i);
            chunk[i].generation = 1;
        }
        atomic_store_explicit(&table->chunks[first / CHUNK_SLOTS], chunk, memory_order_release);
        for (int i = CHUNK_SLOTS - 1; i > 0; i--)
            push(table, &chunk[i]);
        slot = &chunk[0];
    }
    pthread_mutex_unlock(&table->lock);
    return slot;
}

dt_operation_t *dt_handle_acquire(dt_handle_table_t *table)
{
    slot_t *slot = pop(table);
    if (!slot)
        slot = grow(table);
    if (!slot)
        return NULL;
    atomic_fetch_add_explicit(&table->count, 1, memory_order_relaxed);
    dt_operation_t *operation = &slot->operation;
    atomic_store_explicit(&operation->status, DTRAIN_IN_PROGRESS, memory_order_relaxed);
    operation->is_refused = operation->is_stray = operation->is_agreed = operation->is_withdrawn =
        0;
    operation->is_bystander = 0;
    operation->flight = 0;
    operation->callback = NULL;
    operation->name = NULL;
    operation->set = NULL;
    operation->change = NULL;
    operation->sizes = NULL;
    operation->codec = NULL;
    operation->gpu = NULL;
    operation->out_indices = NULL;
    operation->stand_in = NULL;
    operation->result = -1;
    operation->copied = 0;
    operation->root = operation->peer = 0;
    operation->divisor = 1;
    operation->room = operation->out_rows = 0;
    atomic_store_explicit(&operation->done, DT_NOT_DONE, memory_order_relaxed);
    atomic_store_explicit(&operation->handle, slot->generation++ << SLOT_BITS | slot->index,
                          memory_order_release);
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
    /* Most often there is no text. An OK that is read while the slot still has this handle is this
     * operation's: the slot's next one makes it IN_PROGRESS before it gets another handle. */
    if (atomic_load_explicit(&operation->status, memory_order_acquire) == DTRAIN_OK &&
        atomic_load(&operation->handle) == handle) {
        *status = DTRAIN_OK;
        if (cap > 0)
            text[0] = 0;
        return 0;
    }
    pthread_mutex_lock(&table->lock);
    int is_stale = atomic_load(&operation->handle) != handle;
    if (!is_stale) {
        *status = atomic_load_explicit(&operation->status, memory_order_relaxed);
        snprintf(text, cap, "%s", operation->error ? operation->error : "");
    }
    pthread_mutex_unlock(&table->lock);
    return is_stale ? -1 : 0;
}

/* [lock held] */
static void drop_contents(dt_handle_table_t *table, dt_operation_t *operation)
{
    /* It failed after data may have begun to move: the world is gone, and peers may not know. */
    if (operation->owned && operation->is_agreed && atomic_load(&operation->status) != DTRAIN_OK) {
        dt_output_t *last = operation->owned;
        while (last->next)
            last = last->next;
        last->next = table->outputs;
        table->outputs = operation->owned;
        operation->owned = NULL;
    }
    free_contents(operation);
    operation->error = NULL;
    operation->splits = NULL;
    operation->sparse = NULL;
    operation->owned = NULL;
    operation->ready = NULL;
    atomic_store(&operation->enqueued, NULL);
}

int dt_handle_output(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle,
                     dt_handle_output_t *output)
{
    (void)table;
    output->signature = operation->signature;
    output->data = operation->out;
    output->rows = operation->out_rows;
    output->indices = operation->out_indices;
    return atomic_load(&operation->handle) == handle ? 0 : -1;
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
    (void)table;
    if (atomic_load(&operation->handle) == handle)
        atomic_store(&operation->done, DT_DONE);
}

int dt_handle_release(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle)
{
    uint64_t current = handle;
    if (!atomic_compare_exchange_strong(&operation->handle, &current, 0))
        return -1;
    if (atomic_load_explicit(&operation->status, memory_order_relaxed) != DTRAIN_OK ||
        operation->splits || operation->sparse || operation->owned || operation->ready) {
        /* What is in it is read under the lock. */
        pthread_mutex_lock(&table->lock);
        drop_contents(table, operation);
        pthread_mutex_unlock(&table->lock);
    }
    push(table, (slot_t *)operation);
    atomic_fetch_sub_explicit(&table->count, 1, memory_order_relaxed);
    return 0;
}

int dt_handle_count(dt_handle_table_t *table)
{
    return atomic_load_explicit(&table->count, memory_order_relaxed);
}
