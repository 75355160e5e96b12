/* futex.h - sleep on a 32-bit word, in one process or across processes that share its page. */
#ifndef DT_BASE_FUTEX_H
#define DT_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word == expected, for at most timeout_ns (DT_NEVER: no limit). May wake early. */
void dt_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);

/* Wakes up to `count` sleepers. */
void dt_futex_wake(_Atomic uint32_t *word, int count);

#endif
