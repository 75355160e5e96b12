#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/mpi/mpi_segments.h"

static const char *segment_of(const char *text)
{
    static char line[256];
    snprintf(line, sizeof line, "%s\n", text);
    return dt_mpi_segment_of(line);
}

static void test_mpi_segment_is_told_by_its_name(void **state)
{
    (void)state;
    assert_string_equal(
        segment_of("7f00-7f40 rw-s 00000000 00:17 4711  /dev/shm/vader_segment.gpu7.0.6cfa0001.2"),
        "/dev/shm/vader_segment.gpu7.0.6cfa0001.2");
    assert_null(segment_of("7f00-7f40 rw-s 0 00:17 4711  /dev/shm/vader_segment.a.0.1 (deleted)"));
    assert_null(segment_of("7f00-7f40 rw-s 0 00:17 4711  /dev/shm/data.vader_segment.a.0.1"));
    assert_null(segment_of("7f00-7f40 rw-s 0 00:17 4711  /vader_segment.d/libc.so.6"));
    assert_null(segment_of("7f00-7f40 rw-p 0 00:00 0"));
}

static void test_mpi_segments_that_are_mapped_are_removed_and_no_others(void **state)
{
    (void)state;
    char folder[] = "/tmp/dtrain-segments-XXXXXX", paths[2][64];
    void *mapped[2];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, i ? "mine" : "vader_segment.a.0.1");
        int file = open(paths[i], O_RDWR | O_CREAT, 0600);
        assert_int_equal(ftruncate(file, 4096), 0);
        mapped[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        assert_true(mapped[i] != MAP_FAILED);
        close(file);
    }
    dt_mpi_segments_remove();
    assert_int_equal(access(paths[0], F_OK), -1);
    assert_int_equal(access(paths[1], F_OK), 0);
    memset(mapped[0], 1, 4096); /* still usable */
    munmap(mapped[0], 4096);
    munmap(mapped[1], 4096);
    unlink(paths[1]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpi_segment_is_told_by_its_name),
        cmocka_unit_test(test_mpi_segments_that_are_mapped_are_removed_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
