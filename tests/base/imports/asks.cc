// A library that imports functions. Built with lazy binding, with slots that are read-only from the start on, and
// without a procedure linkage table.
extern "C" {
int stalloc_test_answer(int question);
int stalloc_test_other_answer(int question);

__attribute__((visibility("default"))) int stalloc_test_ask(int question) { return stalloc_test_answer(question); }
__attribute__((visibility("default"))) int stalloc_test_ask_other(int question) {
  return stalloc_test_other_answer(question);
}
// By the address, which lies in a slot of its own.
__attribute__((visibility("default"))) int stalloc_test_ask_by_address(int question) {
  int (*volatile answer)(int) = &stalloc_test_answer;
  return answer(question);
}
}
