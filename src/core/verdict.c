#include "core/verdict.h"

#include <stdio.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/completion.h"

/* Operations of a longer verdict are faster together. */
#define EAGER_ENTRIES_MAX 8

/* Scratch for at least one more agreed operation. */
static int reserve(dt_runtime_t *runtime, uint32_t count)
{
    if (count < runtime->agreed_capacity)
        return 0;
    uint32_t capacity = count < 128 ? 256 : 2 * count;
    dt_operation_t **agreed =
        dt_realloc(runtime->agreed, (size_t)capacity * sizeof *runtime->agreed);
    if (!agreed)
        return -1;
    runtime->agreed = agreed;
    runtime->agreed_capacity = capacity;
    return 0;
}

/* An operation failed, which this rank need not have submitted. */
static void apply_error(dt_runtime_t *runtime, const dt_entry_t *entry)
{
    if (dt_entry_excludes(entry, runtime->world.topology.rank))
        return;
    dt_operation_t *operation = dt_intake_find(&runtime->intake, entry->name, entry->name_length);
    if (!operation)
        return;
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "%.*s", (int)entry->text_length, entry->text);
    dt_complete(runtime, operation, (dtrain_status_t)entry->status, text);
}

static dtrain_status_t find_agreed(dt_runtime_t *runtime, const dt_entry_t *entry,
                                   dt_operation_t **found)
{
    dt_intake_t *intake = &runtime->intake;
    dt_operation_t *operation = entry->kind == DT_ENTRY_CACHED
                                    ? dt_id_table_get(&runtime->by_id, entry->id)
                                    : dt_intake_find(intake, entry->name, entry->name_length);
    if (!operation || operation->is_agreed || operation->is_refused)
        return dt_fail(DTRAIN_ERR_INTERNAL,
                       "rank 0 decided on an operation that is not in flight here");
    if (entry->kind == DT_ENTRY_NEW && entry->id != DT_ID_NONE) {
        dtrain_status_t status = dt_intake_learn(intake, operation, entry->id);
        if (status != DTRAIN_OK)
            return status;
    }
    *found = operation;
    return DTRAIN_OK;
}

/* Two other ranks' transfer: this rank has its place in the order of collectives. */
static dtrain_status_t stand_by(dt_runtime_t *runtime, const dt_entry_t *entry,
                                dt_operation_t **found)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)entry->name_length, entry->name);
    if (dt_signature_check(&entry->signature, name, runtime->world.topology.size) != DTRAIN_OK)
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank 0 agreed on a transfer that cannot be");
    dt_operation_t *operation = dt_handle_acquire(runtime->handles);
    if (!operation)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a transfer of other ranks");
    operation->is_bystander = 1;
    operation->signature = entry->signature;
    operation->in = operation->out = NULL;
    operation->name = NULL;
    operation->id = DT_ID_NONE;
    operation->count = operation->bytes = 0;
    operation->deadline_ns = DT_NEVER;
    dt_operation_append(&runtime->pending, operation);
    atomic_fetch_add(&runtime->num_pending, 1);
    *found = operation;
    return DTRAIN_OK;
}

static int is_bystander(const dt_entry_t *entry, int rank)
{
    const dt_signature_t *signature = &entry->signature;
    return entry->kind == DT_ENTRY_NEW && signature->kind == DT_KIND_TRANSFER &&
           signature->root != rank && signature->peer != rank;
}

dtrain_status_t dt_verdict_apply(dt_runtime_t *runtime, dt_reader_t *reader)
{
    dt_fault_point(DT_FAULT_VERDICT);
    uint32_t entries = dt_get_u32(reader);
    uint32_t num_agreed = 0;
    for (uint32_t i = 0; i < entries; i++) {
        dt_entry_t entry;
        if (dt_get_entry(reader, &entry))
            return dt_fail(DTRAIN_ERR_INTERNAL, "a malformed verdict came from rank 0");
        if (entry.kind == DT_ENTRY_ERROR) {
            apply_error(runtime, &entry);
            continue;
        }
        dt_operation_t *operation = NULL;
        dtrain_status_t status = is_bystander(&entry, runtime->world.topology.rank)
                                     ? stand_by(runtime, &entry, &operation)
                                     : find_agreed(runtime, &entry, &operation);
        if (status != DTRAIN_OK)
            return status;
        if (operation->signature.kind == DT_KIND_BARRIER) {
            dt_complete(runtime, operation, DTRAIN_OK, NULL);
            continue;
        }
        operation->is_agreed = 1;
        if (entry.kind == DT_ENTRY_CACHED && entries <= EAGER_ENTRIES_MAX &&
            dt_executor_take(&runtime->executor, operation))
            continue;
        if (reserve(runtime, num_agreed))
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a verdict");
        runtime->agreed[num_agreed++] = operation;
    }
    return dt_executor_add(&runtime->executor, runtime->agreed, (int)num_agreed);
}
