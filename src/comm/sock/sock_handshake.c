#include "comm/sock/sock_handshake.h"

#include <string.h>

#include "base/bytes.h"

/* The last byte is the version of what follows. */
static const uint8_t magic[8] = {'d', 't', 'r', 'a', 'i', 'n', 's', 1};

#define HALF (DT_SOCK_SECRET_BYTES / 2)
#define RANK_AT 8 /* 32 bits, little endian; four bytes of zeros follow */
#define HELLO_PROOF_AT 16
#define ANSWER_PROOF_AT 8

_Static_assert(HELLO_PROOF_AT + HALF == DT_SOCK_HELLO_BYTES, "a hello is as long as its parts");
_Static_assert(ANSWER_PROOF_AT + HALF == DT_SOCK_ANSWER_BYTES, "so is an answer");

/* Takes as long wherever the first difference is: time must not tell how much was right. */
static int is_equal(const uint8_t *a, const uint8_t *b, size_t length)
{
    unsigned differs = 0;
    for (size_t i = 0; i < length; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return differs == 0;
}

void dt_sock_write_hello(uint8_t hello[DT_SOCK_HELLO_BYTES], const uint8_t *secret, int rank)
{
    memset(hello, 0, DT_SOCK_HELLO_BYTES);
    memcpy(hello, magic, sizeof magic);
    dt_put_u32(hello + RANK_AT, (uint32_t)rank);
    memcpy(hello + HELLO_PROOF_AT, secret, HALF);
}

int dt_sock_read_hello(const uint8_t hello[DT_SOCK_HELLO_BYTES], const uint8_t *secret)
{
    uint32_t rank = dt_get_u32(hello + RANK_AT);
    if (!is_equal(hello + HELLO_PROOF_AT, secret, HALF))
        return -1;
    if (memcmp(hello, magic, sizeof magic) != 0 || rank > INT32_MAX)
        return -1;
    return (int)rank;
}

void dt_sock_write_answer(uint8_t answer[DT_SOCK_ANSWER_BYTES], const uint8_t *secret)
{
    memcpy(answer, magic, sizeof magic);
    memcpy(answer + ANSWER_PROOF_AT, secret + HALF, HALF);
}

int dt_sock_check_answer(const uint8_t answer[DT_SOCK_ANSWER_BYTES], const uint8_t *secret)
{
    return is_equal(answer + ANSWER_PROOF_AT, secret + HALF, HALF) &&
           memcmp(answer, magic, sizeof magic) == 0;
}

size_t dt_sock_write_verdict(uint8_t verdict[DT_SOCK_VERDICT_MAX], dtrain_status_t status,
                             const char *text)
{
    size_t length = status == DTRAIN_OK ? 0 : strnlen(text, DT_ERROR_MAX);
    dt_put_u32(verdict, (uint32_t)status);
    memcpy(verdict + 4, text, length);
    return 4 + length;
}

dtrain_status_t dt_sock_read_verdict(const uint8_t *verdict, size_t length)
{
    if (length < 4 || length > DT_SOCK_VERDICT_MAX)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "rank 0 sent a verdict of %zu bytes", length);
    int32_t status = (int32_t)dt_get_u32(verdict);
    if (status == DTRAIN_OK)
        return DTRAIN_OK;
    if (status > 0)
        status = DTRAIN_ERR_COMMUNICATION;
    return dt_fail((dtrain_status_t)status, "%.*s", (int)(length - 4), (const char *)verdict + 4);
}
