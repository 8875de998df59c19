#include "planner/analysis/memory_class.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

using Names = std::map<Bytes, std::string>;

// Class by size in units of 512 B, of the blocks of segments `first` to `last`; a block's size is its name.
Names ClassesOf(std::string_view script, std::uint32_t first, std::uint32_t last) {
  const Trace trace = TraceFromScript(script);
  const PhaseMap phases(CutAtMarks(trace), trace.marks);
  const DeviceTrace device = BuildLifetimes(trace).value()[0];
  const MemoryClassifier classifier(device, nullptr, phases);
  Names names;
  for (const Allocation& allocation : device.allocations) {
    if (allocation.segment < first || allocation.segment > last) continue;
    names[allocation.bytes / kBlockAlignment] = MemoryClassName(classifier.Classify(allocation));
  }
  return names;
}

TEST(MemoryClassTest, MarksTellAllClasses) {
  // 1: weight; 2: activation; 3: temporary; 4: gradient; 5: temporary of the backward; 6: state; 7: of the optimizer
  const std::string first = "I F0 +a=1024 +t=1536 -t B0 +g=2048 +u=2560 -u -a O +s=3072 +v=3584 -v -g ";
  const std::string later = Repeat("I F0 +a=1024 +t=1536 -t B0 +g=2048 +u=2560 -u -a O +v=3584 -v -g ", 3);
  const Names expected{{1, "weights"},     {2, "activations"},     {3, "temporaries"}, {4, "gradients"},
                       {5, "temporaries"}, {6, "optimizer state"}, {7, "temporaries"}};
  EXPECT_EQ(ClassesOf("+w=512 " + first + later, 0, 1), expected);
}

TEST(MemoryClassTest, GradientsMayStayForGood) {
  const std::string later = Repeat("I F0 +a=1024 B0 -a O ", 3);
  EXPECT_EQ(ClassesOf("+w=512 I F0 +a=1024 B0 +g=2048 -a O +s=3072 " + later, 1, 1)[4], "gradients");
}

TEST(MemoryClassTest, GradientsMayBeFreedAtTheBeginningOfTheNextIteration) {
  EXPECT_EQ(ClassesOf("+w=512 I F0 B0 +g=2048 O I -g F0 B0 +g=2048 O I -g", 1, 1)[4], "gradients");
}

TEST(MemoryClassTest, AutomaticMarksOfTheOptimizerAreEnoughForGradients) {
  const std::string body = "+a=1024 " + Repeat("+t=512 -t ", 10) + "+g=2048 -a O? I? -g ";
  const Names names = ClassesOf("+w=3072 " + Repeat(body, 4), 1, 2);
  EXPECT_EQ(names, (Names{{1, "temporaries"}, {2, "activations"}, {4, "gradients"}}));
}

TEST(MemoryClassTest, WithoutAnyMarksLifetimesTellWhatTheyCan) {
  const std::string body = "I +a=1024 " + Repeat("+t=512 -t ", 10) + "+g=2048 -a -g ";
  const Names names = ClassesOf("+w=4096 " + body + "+s=3072 " + Repeat(body, 3), 0, 1);
  EXPECT_EQ(
      names,
      (Names{{1, "temporaries"}, {2, "activations"}, {4, "temporaries"}, {6, "optimizer state"}, {8, "weights"}}));
}

TEST(MemoryClassTest, NamesOfTensorsDecide) {
  Trace trace = TraceFromScript("+b=512 I F0 +a=1024 B0 -a +m=2048 O I");
  trace.texts = {"mean", "up.weight", "up.weight:main"};
  trace.tensors = {{.allocation = 1, .name = 1, .role = TensorRole::kParameter},
                   {.allocation = 0, .name = 0, .role = TensorRole::kBuffer},
                   {.allocation = 2, .name = 2, .role = TensorRole::kOptimizerState},
                   {.allocation = 2, .offset = 512, .name = 1, .role = TensorRole::kGradient}};
  const DeviceTrace device = BuildLifetimes(trace).value()[0];
  const PhaseMap phases(CutAtMarks(trace), trace.marks);
  const MemoryClassifier classifier(device, nullptr, phases);
  EXPECT_EQ(classifier.Classify(device.allocations[0]), MemoryClass::kWeights);
  EXPECT_EQ(classifier.Classify(device.allocations[1]), MemoryClass::kWeights) << "an activation by its lifetime";
  EXPECT_EQ(classifier.Classify(device.allocations[2]), MemoryClass::kOptimizerState) << "the first one inside";
  ASSERT_EQ(device.tensors.size(), 4u);
  EXPECT_EQ(device.tensors[3].offset, 512u);
}

// The optimizer's part ends with its step: what the loop does behind it is none of the optimizer's.
TEST(MemoryClassTest, BehindTheOptimizersStepAreInputsAndWhatIsKept) {
  // 1: weight; 2: activation; 4: gradient; 6: state; 8: the next batch; 10: kept for good; 12: kept for three
  // iterations; 14: gone before the next pass
  const std::string body = "F0 +a=1024 -i B0 +g=2048 -a O ";
  std::string script = "+w=512 +i=4096 ";
  for (int i = 0; i < 5; ++i) {
    script += "I " + body + (i == 0 ? "+s=3072 " : "") + "O- -g +t=7168 +i=4096 +k" + std::to_string(i) +
              "=5120 -t +q" + std::to_string(i) + "=6144 " + (i >= 3 ? "-q" + std::to_string(i - 3) + " " : "");
  }
  const Names expected{{1, "weights"}, {2, "activations"}, {4, "gradients"}, {6, "optimizer state"},
                       {8, "inputs"},  {10, "other"},      {12, "other"},    {14, "temporaries"}};
  EXPECT_EQ(ClassesOf(script, 0, 1), expected);
}

TEST(MemoryClassTest, WhatIsMadeBeforeTheFirstPassOfAnIterationIsAnInput) {
  const Names names = ClassesOf("+w=512 " + Repeat("I +i=1024 +t=1536 -t F0 +a=2048 B0 -a -i O O- ", 3), 1, 1);
  EXPECT_EQ(names, (Names{{2, "inputs"}, {3, "temporaries"}, {4, "activations"}}));
}

// Marks that a hook of the optimizer places begin behind the first iteration.
TEST(MemoryClassTest, TheFirstIterationMayLieInTheSetUp) {
  const std::string body = Repeat("+t=512 -t ", 10) + "+g=2048 -a O? O- I? -g -x ";
  const Names names = ClassesOf("+w=3072 +a=1024 +x=1536 " + body + Repeat("+a=1024 +x=1536 " + body, 3), 0, 0);
  EXPECT_EQ(names, (Names{{1, "temporaries"}, {2, "activations"}, {3, "gradients"}, {4, "gradients"}, {6, "weights"}}))
      << "without names what reaches the optimizer is a gradient";
}

// A trace that names inputs names all of them.
TEST(MemoryClassTest, WhatHasNoNameIsNoInputAndNoGradientWhereTheseHaveNames) {
  const std::string script =
      "+w=512 I +i=1024 +n=1536 F0 +a=2048 B0 -a +g=2560 +u=3072 O O- -n -u I +l=3584 F0 B0 O O- I";
  Trace trace = TraceFromScript(script);
  trace.texts = {"Net.x", "Net.weight"};
  trace.tensors = {{.allocation = 1, .name = 0, .role = TensorRole::kInput},
                   {.allocation = 4, .name = 1, .role = TensorRole::kGradient}};
  const DeviceTrace device = BuildLifetimes(trace).value()[0];
  const PhaseMap phases(CutAtMarks(trace), trace.marks);
  const MemoryClassifier classifier(device, nullptr, phases);
  const auto is = [&](std::size_t index) {
    return std::string(MemoryClassName(classifier.Classify(device.allocations[index])));
  };
  EXPECT_EQ(is(1), "inputs") << "persistent: nothing frees it";
  EXPECT_EQ(is(2), "other");
  EXPECT_EQ(is(4), "gradients");
  EXPECT_EQ(is(5), "gradients") << "a bucket of a backward pass";
}

// A layer is run again, then goes back: what its operations leave for the backward pass are activations.
TEST(MemoryClassTest, WhatABackwardPassRecomputesAreActivations) {
  const std::string layer = "+r=1024r +t=1536r -t +q=2048r +x=2560 +c=512r -x -q +u=3072 -r -u -c ";
  const Names names = ClassesOf("+w=512 " + Repeat("I F0 B0 " + layer + layer + "O O- ", 3), 1, 1);
  EXPECT_EQ(names, (Names{{1, "activations"},  // behind the gap: the range goes on there
                          {2, "activations"},
                          {3, "temporaries"},
                          {4, "activations"},
                          {5, "activations"},     // in the gap: an autograd function's own
                          {6, "temporaries"}}));  // of the backward pass
}

TEST(MemoryClassTest, ARecomputationEndsWhereTheBackwardPassFreesIt) {
  // The second layer begins where most of the first one is gone: 3 is freed before it, and is an activation.
  const Names names =
      ClassesOf("+w=512 " + Repeat("I F0 B0 +r=1024r +a=1536r +u=2048 -a -r +s=2560r -u -s O O- ", 3), 1, 1);
  EXPECT_EQ(names, (Names{{2, "activations"}, {3, "activations"}, {4, "temporaries"}, {5, "activations"}}));
}

TEST(MemoryClassTest, WhatVariesIsDynamic) {
  const Trace trace = TraceFromScript("I F0 +a=1024 B0 -a I F0 +a=2048 B0 -a I F0 +a=4096 B0 -a");
  const Segmentation cut = CutAtMarks(trace);
  const DeviceTrace device = BuildLifetimes(trace).value()[0];
  const SteadyModel model = CompareIterations(device, FindCycle(device, cut, true).value());
  const PhaseMap phases(cut, trace.marks);
  EXPECT_EQ(MemoryClassifier(device, &model, phases).Classify(device.allocations[1]), MemoryClass::kDynamic);
}

TEST(MemoryClassTest, FencesAndCapturesAreOther) {
  const Names names = ClassesOf("+w=512 I F0 +c=1024! -c B0 (eval +e=1536 -e ) O I", 1, 1);
  EXPECT_EQ(names, (Names{{2, "other"}, {3, "other"}}));
}

TEST(MemoryClassTest, NotesSayWhatMarksDoNotTell) {
  const auto notes = [](std::string_view script) {
    const Trace trace = TraceFromScript(script);
    return ClassNotes(PhaseMap(CutAtMarks(trace), trace.marks));
  };
  EXPECT_THAT(notes("I F0 +a=1 B0 -a O"), testing::IsEmpty());
  EXPECT_THAT(notes("I +a=1 -a O?"), testing::ElementsAre(testing::HasSubstr("micro-batch")));
  EXPECT_EQ(notes("I +a=1 -a").size(), 2u);
}

}  // namespace
}  // namespace stalloc::planner
