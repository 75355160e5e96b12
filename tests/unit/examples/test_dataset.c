/* dataset_load on folders that are whole, incomplete and contradictory; synthetic data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dataset.h"
#include "files.h"

#define TRAIN_IMAGES "train-images-idx3-ubyte"
#define TRAIN_LABELS "train-labels-idx1-ubyte"
#define TEST_IMAGES "t10k-images-idx3-ubyte"
#define TEST_LABELS "t10k-labels-idx1-ubyte"

static void write_images(const char *name, uint32_t count, uint32_t rows)
{
    const uint32_t dims[3] = {count, rows, 2};
    uint8_t data[256];
    uint8_t bytes[512];
    for (int i = 0; i < 256; i++)
        data[i] = (uint8_t)i;
    files_write(name, bytes, files_idx(bytes, 3, dims, data, (size_t)count * rows * 2));
}

static void write_labels(const char *name, uint32_t count, uint8_t last)
{
    uint8_t data[256] = {0};
    uint8_t bytes[512];
    uint8_t packed[512];
    data[count - 1] = last;
    size_t length = files_idx(bytes, 1, &count, data, count);
    files_write(name, packed, files_gzip(packed, sizeof packed, bytes, length));
}

/* Images plain, labels compressed: both forms are found. */
static int setup(void **state)
{
    (void)state;
    write_images(TRAIN_IMAGES, 5, 3);
    write_labels(TRAIN_LABELS ".gz", 5, 9);
    write_images(TEST_IMAGES, 2, 3);
    write_labels(TEST_LABELS ".gz", 2, 4);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    files_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    files_end();
    return 0;
}

static void check_refused(const char *folder, const char *file, const char *what)
{
    dataset_t dataset = {0};
    mlp_error_t error = {.text = ""};
    assert_int_equal(dataset_load(folder, &dataset, &error), -1);
    assert_null(dataset.train.pixels);
    if (strstr(error.text, file) == NULL || strstr(error.text, what) == NULL)
        fail_msg("\"%s\" does not name \"%s\" and say \"%s\"", error.text, file, what);
}

static void test_dataset_whole_folder_is_loaded(void **state)
{
    (void)state;
    dataset_t dataset = {0};
    mlp_error_t error = {.text = ""};
    assert_int_equal(dataset_load(files_folder(), &dataset, &error), 0);
    assert_int_equal(dataset.features, 6);
    assert_int_equal(dataset.classes, 10);
    assert_int_equal(dataset.train.count, 5);
    assert_int_equal(dataset.test.count, 2);
    assert_int_equal(dataset.train.labels[4], 9);
    assert_int_equal(dataset.train.pixels[29], 29);
    dataset_free(&dataset);
}

static void test_dataset_missing_folder_is_named(void **state)
{
    (void)state;
    check_refused("/nonexistent/folder", "/nonexistent/folder/" TRAIN_IMAGES, "missing");
}

static void test_dataset_missing_file_is_named(void **state)
{
    (void)state;
    files_remove(TEST_LABELS ".gz");
    check_refused(files_folder(), TEST_LABELS, "missing");
}

static void test_dataset_label_above_nine_is_refused(void **state)
{
    (void)state;
    write_labels(TRAIN_LABELS ".gz", 5, 10);
    check_refused(files_folder(), files_path(TRAIN_LABELS ".gz"), "label 10 of sample 4");
}

static void test_dataset_other_count_of_labels_is_refused(void **state)
{
    (void)state;
    write_labels(TRAIN_LABELS ".gz", 4, 1);
    check_refused(files_folder(), files_path(TRAIN_LABELS ".gz"), "4 labels");
    check_refused(files_folder(), files_path(TRAIN_IMAGES), "5 images");
}

static void test_dataset_other_size_of_test_images_is_refused(void **state)
{
    (void)state;
    write_images(TEST_IMAGES, 2, 4);
    check_refused(files_folder(), TEST_IMAGES, "wrong dimensions");
}

static void test_dataset_labels_in_place_of_images_are_refused(void **state)
{
    (void)state;
    write_labels(TRAIN_IMAGES, 5, 1);
    check_refused(files_folder(), files_path(TRAIN_IMAGES), "wrong magic number 0x00000801");
}

static void test_dataset_gather_picks_and_normalises(void **state)
{
    (void)state;
    uint8_t pixels[] = {0, 255, 73, 73};
    uint8_t all_labels[] = {3, 7};
    samples_t samples = {.count = 2, .features = 2, .pixels = pixels, .labels = all_labels};
    const int64_t indices[] = {1, 0};
    float inputs[4];
    uint8_t labels[2];
    samples_gather(&samples, indices, 2, inputs, labels);
    assert_float_equal(inputs[0], 0.0f, 0.01f); /* 73 of 255 is about the mean */
    assert_float_equal(inputs[2], -0.8102f, 0.001f);
    assert_float_equal(inputs[3], 2.0227f, 0.001f);
    assert_int_equal(labels[0], 7);
    assert_int_equal(labels[1], 3);
}

static void test_dataset_synthetic_depends_on_seed_alone(void **state)
{
    (void)state;
    dataset_t first;
    dataset_t again;
    dataset_t other;
    mlp_error_t error = {.text = ""};
    assert_int_equal(dataset_synthesize(4096, 20, 5, 1, &first, &error), 0);
    assert_int_equal(dataset_synthesize(4096, 20, 5, 1, &again, &error), 0);
    assert_int_equal(dataset_synthesize(4096, 20, 5, 2, &other, &error), 0);
    assert_true(dataset_fingerprint(&first) == dataset_fingerprint(&again));
    assert_true(dataset_fingerprint(&first) != dataset_fingerprint(&other));
    for (int64_t i = 0; i < first.train.count; i++)
        assert_true(first.train.labels[i] < 5);
    dataset_free(&first);
    dataset_free(&again);
    dataset_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_dataset_whole_folder_is_loaded, setup),
        cmocka_unit_test_setup(test_dataset_missing_folder_is_named, setup),
        cmocka_unit_test_setup(test_dataset_missing_file_is_named, setup),
        cmocka_unit_test_setup(test_dataset_label_above_nine_is_refused, setup),
        cmocka_unit_test_setup(test_dataset_other_count_of_labels_is_refused, setup),
        cmocka_unit_test_setup(test_dataset_other_size_of_test_images_is_refused, setup),
        cmocka_unit_test_setup(test_dataset_labels_in_place_of_images_are_refused, setup),
        cmocka_unit_test(test_dataset_gather_picks_and_normalises),
        cmocka_unit_test(test_dataset_synthetic_depends_on_seed_alone),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
