/*
 * sock_handshake.h - what is said on a new connection, before messages flow:
 *
 *     the rank    hello: magic, version, its rank, the first half of the secret
 *     rank 0      the magic and the second half of the secret, so that a rank does not talk to a
 *                 stranger either
 *     rank 0      when all ranks are here or it gave up: one message with its verdict
 */
#ifndef DT_COMM_SOCK_SOCK_HANDSHAKE_H
#define DT_COMM_SOCK_SOCK_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/sock/sock_control.h"

#define DT_SOCK_HELLO_BYTES 32
#define DT_SOCK_ANSWER_BYTES 24
#define DT_SOCK_VERDICT_MAX (4 + DT_ERROR_MAX)

void dt_sock_write_hello(uint8_t hello[DT_SOCK_HELLO_BYTES], const uint8_t *secret, int rank);

/* The rank that a hello is from, or -1 when it is not from one of this job's. */
int dt_sock_read_hello(const uint8_t hello[DT_SOCK_HELLO_BYTES], const uint8_t *secret);

void dt_sock_write_answer(uint8_t answer[DT_SOCK_ANSWER_BYTES], const uint8_t *secret);

/* 1 when it is from this job's rank 0. */
int dt_sock_check_answer(const uint8_t answer[DT_SOCK_ANSWER_BYTES], const uint8_t *secret);

/* Returns the verdict's length. `text` only counts when status is not OK. */
size_t dt_sock_write_verdict(uint8_t verdict[DT_SOCK_VERDICT_MAX], dtrain_status_t status,
                             const char *text);

/* The verdict as this thread's own status and error text. */
dtrain_status_t dt_sock_read_verdict(const uint8_t *verdict, size_t length);

#endif
