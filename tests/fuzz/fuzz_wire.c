/* Control messages. What can be read is written again, and is the same; and the negotiation takes
 * in any report. */
#include <string.h>

#include "core/negotiator.h"
#include "core/wire.h"
#include "fuzz.h"

#define RANKS 3

/* The bytes that were read are those that are written of what was read. */
static void check_same(const uint8_t *from, const dt_reader_t *reader, dt_buffer_t *written)
{
    size_t length = (size_t)(reader->at - from);
    FUZZ_CHECK(!written->failed && written->length == length);
    FUZZ_CHECK(length == 0 || memcmp(written->data, from, length) == 0);
    dt_buffer_free(written);
}

static void read_requests(dt_reader_t reader)
{
    dt_request_t request;
    for (const uint8_t *from = reader.at; dt_get_request(&reader, &request) == 0;
         from = reader.at) {
        dt_buffer_t written = {0};
        dt_put_request(&written, &request);
        check_same(from, &reader, &written);
        if (request.status == DTRAIN_OK) {
            char text[64];
            dt_signature_describe(&request.signature, text, sizeof text);
            (void)dt_signature_check(&request.signature, "x", RANKS);
        }
    }
}

static void read_entries(dt_reader_t reader)
{
    dt_entry_t entry;
    for (const uint8_t *from = reader.at; dt_get_entry(&reader, &entry) == 0; from = reader.at) {
        dt_buffer_t written = {0};
        dt_put_entry(&written, &entry);
        check_same(from, &reader, &written);
        (void)dt_entry_excludes(&entry, 1);
    }
}

static void read_end(dt_reader_t reader)
{
    int32_t status;
    const char *text;
    size_t length;
    if (dt_get_end(&reader, &status, &text, &length) == 0 && length > 0)
        FUZZ_CHECK(memchr(text, 0, length) == NULL || length > 0);
}

/* The same report from all ranks, twice, and what rank 0 says of it. */
static void negotiate(dt_reader_t reader)
{
    dt_backend_t backend = {0}; /* nothing is carried out */
    dt_world_t world = {.topology = {.rank = 0, .size = RANKS}, .backend = &backend};
    dt_plan_policy_t policy = {0};
    dt_psets_t psets;
    dt_buffer_t verdict = {0}, part = {0};
    if (dt_psets_init(&psets, &world, &policy, NULL, NULL, NULL, NULL) != DTRAIN_OK)
        return;
    dt_negotiator_t *negotiator = dt_negotiator_create(&world.topology, &psets);
    dtrain_status_t status = negotiator ? DTRAIN_OK : DTRAIN_ERR_OUT_OF_MEMORY;
    for (int i = 0; i < 2 * RANKS && status == DTRAIN_OK; i++) {
        status = dt_negotiator_report(negotiator, i % RANKS, reader.at,
                                      (size_t)(reader.end - reader.at), 1);
        if (status == DTRAIN_OK && i % RANKS == RANKS - 1) {
            dt_buffer_clear(&verdict);
            dt_negotiator_verdict(negotiator, INT64_MAX, &verdict);
            (void)dt_negotiator_part(negotiator, 1, &verdict, &part);
            (void)dt_negotiator_bye(negotiator, i == RANKS - 1 ? 0 : 1);
        }
    }
    dt_buffer_free(&verdict);
    dt_buffer_free(&part);
    dt_negotiator_free(negotiator);
    dt_psets_leave(&psets, 0);
    dt_psets_free(&psets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dt_reader_t reader = dt_reader_make(data, size);
    int type = dt_get_header(&reader);
    if (type == DT_MESSAGE_VERDICT || type == DT_MESSAGE_PART) {
        (void)dt_get_u32(&reader);
        read_entries(reader);
    } else if (type == DT_MESSAGE_REPORT) {
        negotiate(reader);
        dt_reader_t requests = reader;
        uint32_t words = (dt_get_u32(&requests), dt_get_u32(&requests));
        for (uint32_t i = 0; i < words && !requests.failed; i++)
            (void)dt_get_u64(&requests);
        (void)dt_get_u32(&requests);
        read_requests(requests);
    } else if (type == DT_MESSAGE_ABORT || type == DT_MESSAGE_GONE) {
        read_end(reader);
    }
    return 0;
}
