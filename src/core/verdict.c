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
        dtrain_status_t status = find_agreed(runtime, &entry, &operation);
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
