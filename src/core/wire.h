/*
 * wire.h - the one codec of control messages. Little-endian, no padding; every read is checked
 * against the message's end, so that any bytes may be fed to it.
 *
 *   REPORT    rank → rank 0   bits of cached operations that are ready, requests for operations
 *                             that have no bit yet, operations given up after their deadline
 *   VERDICT   rank 0 → ranks  operations that all ranks agreed on, in the order in which every
 *                             rank starts them, and operations that failed
 *   PART      rank 0 → ranks  a VERDICT of which every rank is told its own part
 *   BYE       rank → rank 0   the rank has called dtrain_shutdown
 *   FAREWELL  rank 0 → ranks  all ranks have; nothing follows
 *   ABORT     rank → rank 0   this rank ends the world: status and text
 *   GONE      rank 0 → ranks  the world has ended: status and text
 */
#ifndef DT_CORE_WIRE_H
#define DT_CORE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "core/signature.h"
#include "core/stamp.h"

/* Raised with every change of a message's form. */
#define DT_WIRE_VERSION 5

/* "No id": the operation is not cached. */
#define DT_ID_NONE UINT32_MAX

typedef enum dt_message {
    DT_MESSAGE_REPORT = 1,
    DT_MESSAGE_VERDICT = 2,
    DT_MESSAGE_BYE = 3,
    DT_MESSAGE_FAREWELL = 4,
    DT_MESSAGE_ABORT = 5,
    DT_MESSAGE_GONE = 6,
    DT_MESSAGE_PART = 7
} dt_message_t;

/* Reading. After the first read past the end `failed` is set and all reads give zeros. */
typedef struct dt_reader {
    const uint8_t *at, *end;
    int failed;
} dt_reader_t;

dt_reader_t dt_reader_make(const void *data, size_t length);
uint8_t dt_get_u8(dt_reader_t *reader);
uint16_t dt_get_u16(dt_reader_t *reader);
uint32_t dt_get_u32(dt_reader_t *reader);
uint64_t dt_get_u64(dt_reader_t *reader);
double dt_get_f64(dt_reader_t *reader);
/* A string of u16 length, not zero-terminated; points into the message. */
const char *dt_get_text(dt_reader_t *reader, size_t *length);

void dt_put_u8(dt_buffer_t *buffer, uint8_t value);
void dt_put_u16(dt_buffer_t *buffer, uint16_t value);
void dt_put_u32(dt_buffer_t *buffer, uint32_t value);
void dt_put_u64(dt_buffer_t *buffer, uint64_t value);
void dt_put_f64(dt_buffer_t *buffer, double value);
void dt_put_text(dt_buffer_t *buffer, const char *text, size_t length); /* cut at 65,535 bytes */

/* Writes over a u32 that was put at `offset` before. */
void dt_patch_u32(dt_buffer_t *buffer, size_t offset, uint32_t value);

void dt_put_signature(dt_buffer_t *buffer, const dt_signature_t *signature);
/* 0, or -1 for a signature that no rank can have sent (also sets failed). */
int dt_get_signature(dt_reader_t *reader, dt_signature_t *signature);

void dt_put_stamp(dt_buffer_t *buffer, dt_stamp_t stamp);
dt_stamp_t dt_get_stamp(dt_reader_t *reader);

/* Every message starts with its type and the version. Returns the type, or 0 for a message of
 * another version or none at all. */
void dt_put_header(dt_buffer_t *buffer, dt_message_t type);
int dt_get_header(dt_reader_t *reader);

/*
 * REPORT: header, u32 first word, u32 words, that many u64 (bit i of word w is id 64 (first + w)
 * + i), u32 stamped ones, each u32 id and a stamp in place of its bit, u32 requests, each as below,
 * u32 withdrawals, each f64 seconds waited and a text, the name.
 */
typedef struct dt_request {
    const char *name;
    size_t name_length;
    int32_t status;   /* OK; else the rank refused the call, and `text` says why */
    const char *text; /* a set's definition in a PSET_ADD that is OK; else only in a refused one */
    size_t text_length;
    dt_signature_t signature; /* when status is OK, as the next */
    dt_stamp_t stamp;
} dt_request_t;

void dt_put_request(dt_buffer_t *buffer, const dt_request_t *request);
int dt_get_request(dt_reader_t *reader, dt_request_t *request);

/* VERDICT: header, u32 entries, each: */
typedef enum dt_entry_kind {
    DT_ENTRY_CACHED = 1, /* u32 id */
    DT_ENTRY_NEW = 2,    /* u32 id (or DT_ID_NONE), the name, the signature, u32 ranks that have
                            joined and not reported it, and these as u32 */
    DT_ENTRY_ERROR = 3   /* i32 status, the name, the text, u32 the furthest step that a rank was
                            at (0: there are no stamps), u32 ranks that it is not about (they had
                            not reported it when rank 0 decided), and these as u32 */
} dt_entry_kind_t;

typedef struct dt_entry {
    dt_entry_kind_t kind;
    uint32_t id;
    int32_t status;
    uint32_t step;
    const char *name;
    size_t name_length;
    const char *text;
    size_t text_length;
    const uint8_t *absent; /* num_absent u32, at any alignment */
    uint32_t num_absent;
    dt_signature_t signature;
} dt_entry_t;

void dt_put_entry(dt_buffer_t *buffer, const dt_entry_t *entry);
int dt_get_entry(dt_reader_t *reader, dt_entry_t *entry);

/* 1 when an error is not about this rank, or it has joined instead. */
int dt_entry_excludes(const dt_entry_t *entry, int rank);

/* ABORT and GONE: header, i32 status, text. */
void dt_put_end(dt_buffer_t *buffer, dt_message_t type, int32_t status, const char *text);
int dt_get_end(dt_reader_t *reader, int32_t *status, const char **text, size_t *length);

#endif
