// A library that others import functions from.
extern "C" {
__attribute__((visibility("default"))) int stalloc_test_answer(int question) { return question + 1; }
__attribute__((visibility("default"))) int stalloc_test_other_answer(int question) { return question + 100; }
}
