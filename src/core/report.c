#include "core/report.h"

#include <string.h>

#include "core/pset_change.h"
#include "core/pset_key.h"
#include "core/wire.h"

static int has_bit(const dt_operation_t *operation)
{
    return operation->id != DT_ID_NONE && operation->stamp.step == 0;
}

/* Writes the bits of those operations from `first` on that have an id and no stamp. */
static void put_bits(dt_buffer_t *message, const dt_operation_t *first)
{
    uint32_t low = DT_ID_NONE, high = 0;
    for (const dt_operation_t *operation = first; operation; operation = operation->next) {
        if (!has_bit(operation))
            continue;
        low = operation->id < low ? operation->id : low;
        high = operation->id > high ? operation->id : high;
    }
    uint32_t base = low == DT_ID_NONE ? 0 : low / 64;
    uint32_t words = low == DT_ID_NONE ? 0 : high / 64 - base + 1;
    dt_put_u32(message, base);
    dt_put_u32(message, words);
    uint8_t *bits = dt_buffer_extend(message, (size_t)words * 8);
    if (!bits || words == 0)
        return;
    memset(bits, 0, (size_t)words * 8);
    for (const dt_operation_t *operation = first; operation; operation = operation->next) {
        if (has_bit(operation))
            bits[operation->id / 8 - base * 8] |= (uint8_t)(1u << operation->id % 8);
    }
}

/* Writes ids with stamps. */
static void put_stamped(dt_buffer_t *message, const dt_operation_t *first)
{
    size_t count_at = message->length;
    uint32_t count = 0;
    dt_put_u32(message, 0);
    for (const dt_operation_t *operation = first; operation; operation = operation->next) {
        if (operation->id == DT_ID_NONE || operation->stamp.step == 0)
            continue;
        dt_put_u32(message, operation->id);
        dt_put_stamp(message, operation->stamp);
        count++;
    }
    dt_patch_u32(message, count_at, count);
}

static void put_request(dt_buffer_t *message, const dt_operation_t *operation)
{
    dt_request_t request = {.name = operation->name->text,
                            .name_length = operation->name->length,
                            .status = DTRAIN_OK,
                            .signature = operation->signature,
                            .stamp = operation->stamp};
    dt_buffer_t definition = {0};
    char key[DT_KEY_MAX + 1];
    if (operation->is_stray) {
        request.name_length =
            dt_pset_key(DT_PSET_NONE, operation->name->text, operation->name->length, key);
        request.name = key;
    }
    if (operation->is_refused) {
        request.status = operation->status;
        request.text = operation->error ? operation->error : "";
        request.text_length = strlen(request.text);
    } else if (operation->signature.kind == DT_KIND_PSET_ADD) {
        dt_pset_change_define(operation, &definition);
        request.text = (const char *)definition.data;
        request.text_length = definition.length;
    }
    dt_put_request(message, &request);
    message->failed |= definition.failed;
    dt_buffer_free(&definition);
}

/* Writes requests for those operations from `first` on that have no id, or for all. */
static void put_requests(dt_buffer_t *message, const dt_operation_t *first, int puts_all)
{
    size_t count_at = message->length;
    uint32_t count = 0;
    dt_put_u32(message, 0);
    for (const dt_operation_t *operation = first; operation; operation = operation->next) {
        if (operation->id != DT_ID_NONE && !puts_all)
            continue;
        put_request(message, operation);
        count++;
    }
    dt_patch_u32(message, count_at, count);
}

static int has_stray(const dt_operation_t *first)
{
    while (first && !first->is_stray)
        first = first->next;
    return first != NULL;
}

void dt_report_put(dt_buffer_t *message, const dt_operation_t *first)
{
    dt_buffer_clear(message);
    dt_put_header(message, DT_MESSAGE_REPORT);
    /* Whether a call on no set was before another one of the name is told by their order alone. */
    int has_order = has_stray(first);
    put_bits(message, has_order ? NULL : first);
    put_stamped(message, has_order ? NULL : first);
    put_requests(message, first, has_order);
    dt_put_u32(message, 0); /* withdrawals */
}

size_t dt_report_put_withdrawals(dt_buffer_t *message)
{
    dt_report_put(message, NULL);
    return message->length - sizeof(uint32_t);
}
