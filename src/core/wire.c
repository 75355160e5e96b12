#include "core/wire.h"

#include <string.h>

#include "base/dtype.h"
#include "core/pset_key.h"

/* Little-endian hosts only so far: the values are copied as they are. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

dt_reader_t dt_reader_make(const void *data, size_t length)
{
    dt_reader_t reader = {.at = data, .end = (const uint8_t *)data + length, .failed = 0};
    return reader;
}

/* The next `length` bytes, or NULL past the end. */
static const uint8_t *take(dt_reader_t *reader, size_t length)
{
    if (reader->failed || (size_t)(reader->end - reader->at) < length) {
        reader->failed = 1;
        return NULL;
    }
    const uint8_t *bytes = reader->at;
    reader->at += length;
    return bytes;
}

static void get(dt_reader_t *reader, void *value, size_t length)
{
    const uint8_t *bytes = take(reader, length);
    if (bytes)
        memcpy(value, bytes, length);
}

uint8_t dt_get_u8(dt_reader_t *reader)
{
    uint8_t value = 0;
    get(reader, &value, sizeof value);
    return value;
}

uint16_t dt_get_u16(dt_reader_t *reader)
{
    uint16_t value = 0;
    get(reader, &value, sizeof value);
    return value;
}

uint32_t dt_get_u32(dt_reader_t *reader)
{
    uint32_t value = 0;
    get(reader, &value, sizeof value);
    return value;
}

uint64_t dt_get_u64(dt_reader_t *reader)
{
    uint64_t value = 0;
    get(reader, &value, sizeof value);
    return value;
}

double dt_get_f64(dt_reader_t *reader)
{
    double value = 0;
    get(reader, &value, sizeof value);
    return value;
}

const char *dt_get_text(dt_reader_t *reader, size_t *length)
{
    *length = dt_get_u16(reader);
    const uint8_t *bytes = take(reader, *length);
    if (!bytes) {
        *length = 0;
        return "";
    }
    return (const char *)bytes;
}

void dt_put_u8(dt_buffer_t *buffer, uint8_t value)
{
    dt_buffer_append(buffer, &value, sizeof value);
}

void dt_put_u16(dt_buffer_t *buffer, uint16_t value)
{
    dt_buffer_append(buffer, &value, sizeof value);
}

void dt_put_u32(dt_buffer_t *buffer, uint32_t value)
{
    dt_buffer_append(buffer, &value, sizeof value);
}

void dt_put_u64(dt_buffer_t *buffer, uint64_t value)
{
    dt_buffer_append(buffer, &value, sizeof value);
}

void dt_put_f64(dt_buffer_t *buffer, double value)
{
    dt_buffer_append(buffer, &value, sizeof value);
}

void dt_put_text(dt_buffer_t *buffer, const char *text, size_t length)
{
    if (length > UINT16_MAX)
        length = UINT16_MAX;
    dt_put_u16(buffer, (uint16_t)length);
    dt_buffer_append(buffer, text, length);
}

void dt_patch_u32(dt_buffer_t *buffer, size_t offset, uint32_t value)
{
    if (!buffer->failed)
        memcpy(buffer->data + offset, &value, sizeof value);
}

static void put_codec(dt_buffer_t *buffer, const dt_signature_t *signature)
{
    dt_put_text(buffer, signature->codec, strlen(signature->codec));
    if (signature->codec[0])
        dt_put_u64(buffer, (uint64_t)signature->coded_bytes);
}

static void get_codec(dt_reader_t *reader, dt_signature_t *signature)
{
    size_t length;
    const char *name = dt_get_text(reader, &length);
    if (length > DTRAIN_CODEC_NAME_MAX || (length > 0 && memchr(name, 0, length)))
        reader->failed = 1;
    if (reader->failed || length == 0)
        return;
    memcpy(signature->codec, name, length);
    signature->coded_bytes = (int64_t)dt_get_u64(reader);
}

void dt_put_signature(dt_buffer_t *buffer, const dt_signature_t *signature)
{
    dt_put_u8(buffer, signature->kind);
    dt_put_u8(buffer, signature->op);
    dt_put_u8(buffer, signature->dtype);
    dt_put_u8(buffer, signature->ndim);
    dt_put_u32(buffer, (uint32_t)signature->device);
    dt_put_u32(buffer, (uint32_t)signature->root);
    dt_put_u32(buffer, (uint32_t)signature->pset);
    dt_put_u32(buffer, (uint32_t)signature->peer);
    dt_put_u32(buffer, (uint32_t)signature->priority);
    dt_put_u8(buffer, (uint8_t)signature->memory);
    dt_put_u32(buffer, signature->group_size);
    dt_put_u32(buffer, signature->group_index);
    dt_put_u64(buffer, signature->group);
    dt_put_f64(buffer, signature->prescale);
    dt_put_f64(buffer, signature->postscale);
    put_codec(buffer, signature);
    for (int i = 0; i < signature->ndim; i++)
        dt_put_u64(buffer, (uint64_t)signature->shape[i]);
}

int dt_get_signature(dt_reader_t *reader, dt_signature_t *signature)
{
    memset(signature, 0, sizeof *signature);
    signature->kind = dt_get_u8(reader);
    signature->op = dt_get_u8(reader);
    signature->dtype = dt_get_u8(reader);
    signature->ndim = dt_get_u8(reader);
    signature->device = (int32_t)dt_get_u32(reader);
    signature->root = (int32_t)dt_get_u32(reader);
    signature->pset = (int32_t)dt_get_u32(reader);
    signature->peer = (int32_t)dt_get_u32(reader);
    signature->priority = (int32_t)dt_get_u32(reader);
    signature->memory = dt_get_u8(reader);
    signature->group_size = dt_get_u32(reader);
    signature->group_index = dt_get_u32(reader);
    signature->group = dt_get_u64(reader);
    signature->prescale = dt_get_f64(reader);
    signature->postscale = dt_get_f64(reader);
    get_codec(reader, signature);
    if (signature->ndim > DTRAIN_NDIM_MAX || signature->kind < DT_KIND_ALLREDUCE ||
        signature->kind > DT_KIND_LAST || signature->memory > DT_MEMORY_NEW_WINDOW ||
        (signature->group_size == 0) != (signature->group == 0))
        reader->failed = 1;
    for (int i = 0; !reader->failed && i < signature->ndim; i++)
        signature->shape[i] = (int64_t)dt_get_u64(reader);
    if (!reader->failed && !dt_kind_traits(signature->kind)->is_control &&
        (dt_dtype_size((dtrain_dtype_t)signature->dtype) == 0 || dt_signature_count(signature) < 0))
        reader->failed = 1;
    return reader->failed ? -1 : 0;
}

void dt_put_stamp(dt_buffer_t *buffer, dt_stamp_t stamp)
{
    dt_put_u32(buffer, stamp.step);
    dt_put_u16(buffer, stamp.passes);
    dt_put_u16(buffer, stamp.kind);
}

dt_stamp_t dt_get_stamp(dt_reader_t *reader)
{
    dt_stamp_t stamp;
    stamp.step = dt_get_u32(reader);
    stamp.passes = dt_get_u16(reader);
    stamp.kind = dt_get_u16(reader);
    return stamp;
}

void dt_put_header(dt_buffer_t *buffer, dt_message_t type)
{
    dt_put_u8(buffer, (uint8_t)type);
    dt_put_u8(buffer, DT_WIRE_VERSION);
}

int dt_get_header(dt_reader_t *reader)
{
    int type = dt_get_u8(reader);
    int version = dt_get_u8(reader);
    return reader->failed || version != DT_WIRE_VERSION ? 0 : type;
}

void dt_put_request(dt_buffer_t *buffer, const dt_request_t *request)
{
    dt_put_u32(buffer, (uint32_t)request->status);
    dt_put_text(buffer, request->name, request->name_length);
    if (request->status == DTRAIN_OK) {
        dt_put_signature(buffer, &request->signature);
        dt_put_stamp(buffer, request->stamp);
    }
    if (request->status != DTRAIN_OK || request->signature.kind == DT_KIND_PSET_ADD)
        dt_put_text(buffer, request->text, request->text_length);
}

/* Names come from ranks that checked them; anything else is no message of ours. */
static void check_name(dt_reader_t *reader, size_t length)
{
    if (length == 0 || length > DT_KEY_MAX)
        reader->failed = 1;
}

int dt_get_request(dt_reader_t *reader, dt_request_t *request)
{
    memset(request, 0, sizeof *request);
    request->status = (int32_t)dt_get_u32(reader);
    request->name = dt_get_text(reader, &request->name_length);
    check_name(reader, request->name_length);
    if (request->status == DTRAIN_OK) {
        dt_get_signature(reader, &request->signature);
        request->stamp = dt_get_stamp(reader);
        if (request->signature.kind != DT_KIND_PSET_ADD)
            return reader->failed ? -1 : 0;
    }
    request->text = dt_get_text(reader, &request->text_length);
    if (request->status > 0)
        reader->failed = 1;
    return reader->failed ? -1 : 0;
}

static void put_absent(dt_buffer_t *buffer, const dt_entry_t *entry)
{
    dt_put_u32(buffer, entry->num_absent);
    dt_buffer_append(buffer, entry->absent, (size_t)entry->num_absent * sizeof(uint32_t));
}

static void get_absent(dt_reader_t *reader, dt_entry_t *entry)
{
    entry->num_absent = dt_get_u32(reader);
    entry->absent = take(reader, (size_t)entry->num_absent * sizeof(uint32_t));
}

void dt_put_entry(dt_buffer_t *buffer, const dt_entry_t *entry)
{
    dt_put_u8(buffer, (uint8_t)entry->kind);
    switch (entry->kind) {
    case DT_ENTRY_CACHED:
        dt_put_u32(buffer, entry->id);
        break;
    case DT_ENTRY_NEW:
        dt_put_u32(buffer, entry->id);
        dt_put_text(buffer, entry->name, entry->name_length);
        dt_put_signature(buffer, &entry->signature);
        put_absent(buffer, entry);
        break;
    case DT_ENTRY_ERROR:
        dt_put_u32(buffer, (uint32_t)entry->status);
        dt_put_text(buffer, entry->name, entry->name_length);
        dt_put_text(buffer, entry->text, entry->text_length);
        dt_put_u32(buffer, entry->step);
        put_absent(buffer, entry);
        break;
    }
}

int dt_get_entry(dt_reader_t *reader, dt_entry_t *entry)
{
    memset(entry, 0, sizeof *entry);
    int kind = dt_get_u8(reader);
    switch (kind) {
    case DT_ENTRY_CACHED:
        entry->id = dt_get_u32(reader);
        break;
    case DT_ENTRY_NEW:
        entry->id = dt_get_u32(reader);
        entry->name = dt_get_text(reader, &entry->name_length);
        check_name(reader, entry->name_length);
        dt_get_signature(reader, &entry->signature);
        get_absent(reader, entry);
        break;
    case DT_ENTRY_ERROR:
        entry->status = (int32_t)dt_get_u32(reader);
        entry->name = dt_get_text(reader, &entry->name_length);
        check_name(reader, entry->name_length);
        entry->text = dt_get_text(reader, &entry->text_length);
        entry->step = dt_get_u32(reader);
        get_absent(reader, entry);
        if (entry->status >= 0)
            reader->failed = 1;
        break;
    default:
        reader->failed = 1;
        return -1;
    }
    entry->kind = (dt_entry_kind_t)kind;
    return reader->failed ? -1 : 0;
}

int dt_entry_excludes(const dt_entry_t *entry, int rank)
{
    for (uint32_t i = 0; i < entry->num_absent; i++) {
        uint32_t absent;
        memcpy(&absent, entry->absent + i * sizeof absent, sizeof absent);
        if (absent == (uint32_t)rank)
            return 1;
    }
    return 0;
}

void dt_put_end(dt_buffer_t *buffer, dt_message_t type, int32_t status, const char *text)
{
    dt_put_header(buffer, type);
    dt_put_u32(buffer, (uint32_t)status);
    dt_put_text(buffer, text, strlen(text));
}

int dt_get_end(dt_reader_t *reader, int32_t *status, const char **text, size_t *length)
{
    *status = (int32_t)dt_get_u32(reader);
    *text = dt_get_text(reader, length);
    return reader->failed || *status >= 0 ? -1 : 0;
}
