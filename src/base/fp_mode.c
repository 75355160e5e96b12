#include "base/fp_mode.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

#define DEFAULT_MODE 0x1f80u /* of MXCSR */

static dt_fp_mode_t get_mode(void)
{
    const unsigned sticky_flags = 0x3f;
    return _mm_getcsr() & ~sticky_flags;
}

static void set_mode(dt_fp_mode_t mode)
{
    _mm_setcsr((unsigned)mode);
}
#elif defined(__aarch64__)
#define DEFAULT_MODE 0u /* of FPCR */

static dt_fp_mode_t get_mode(void)
{
    dt_fp_mode_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static void set_mode(dt_fp_mode_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#else
#define DEFAULT_MODE 0u

static dt_fp_mode_t get_mode(void)
{
    return DEFAULT_MODE;
}

static void set_mode(dt_fp_mode_t mode)
{
    (void)mode;
}
#endif

dt_fp_mode_t dt_fp_mode_enter(void)
{
    dt_fp_mode_t mode = get_mode();
    if (mode != DEFAULT_MODE)
        set_mode(DEFAULT_MODE);
    return mode;
}

void dt_fp_mode_leave(dt_fp_mode_t mode)
{
    if (mode != DEFAULT_MODE)
        set_mode(mode);
}
