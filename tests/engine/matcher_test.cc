// The matcher on scripts small enough to write down. tests/engine/matcher_corpus_test.cc has the recorded ones.
#include "allocator/engine/follow/matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace stalloc {
namespace matcher_test {

using Outcome = Matcher::Outcome;

// One entry a letter; the size is the letter's number in granules. Varying entries: see Varying.
Script ScriptOfLetters(const std::string& letters) {
  Script script;
  for (const char letter : letters) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = static_cast<Bytes>(letter) * kBlockAlignment;
    script.entries.push_back(entry);
  }
  return script;
}

void Varying(Script& script, std::size_t entry, char low, char high) {
  script.entries[entry].entry_class = EntryClass::kDynamic;
  script.entries[entry].min_bytes = static_cast<Bytes>(low) * kBlockAlignment;
  script.entries[entry].max_bytes = static_cast<Bytes>(high) * kBlockAlignment;
}

struct Follower {
  explicit Follower(const Script& script) : index(script) { matcher.Follow(&index, 0); }
  Matcher::Match Next(char letter) { return matcher.Next(static_cast<Granules>(letter)); }
  // Entries that the letters are matched to; -1 for none.
  std::vector<int> Run(const std::string& letters) {
    std::vector<int> entries;
    for (const char letter : letters) entries.push_back(Next(letter).entry);
    return entries;
  }
  ScriptIndex index;
  Matcher matcher;
};

using Entries = std::vector<int>;
const char* const kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

TEST(MatcherTest, FollowsAnUndisturbedRun) {
  Follower follower(ScriptOfLetters("ABCABD"));
  EXPECT_EQ(follower.Run("ABCABD"), (Entries{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(follower.matcher.in_sync());
}

TEST(MatcherTest, AnUnknownSizeCostsOnlyItselfAndLeavesTheCursorAlone) {
  Follower follower(ScriptOfLetters("ABCD"));
  EXPECT_EQ(follower.Run("A"), (Entries{0}));
  const Matcher::Match extra = follower.Next('z');
  EXPECT_EQ(extra.outcome, Outcome::kUnknownSize);
  EXPECT_TRUE(follower.matcher.in_sync());
  EXPECT_EQ(follower.matcher.cursor(), 1);
  EXPECT_EQ(follower.Run("BCD"), (Entries{1, 2, 3}));
}

TEST(MatcherTest, AnExtraRequestOfAKnownSizeCostsOnlyItself) {
  Follower follower(ScriptOfLetters(kAlphabet));
  EXPECT_EQ(follower.Run("ABC"), (Entries{0, 1, 2}));
  EXPECT_EQ(follower.Next('Z').outcome, Outcome::kUnmatched);
  EXPECT_EQ(follower.Run("DEFGHIJKLM"), (Entries{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_TRUE(follower.matcher.in_sync());
}

TEST(MatcherTest, AMissingRequestCostsNothing) {
  Follower follower(ScriptOfLetters(kAlphabet));
  EXPECT_EQ(follower.Run("ABCEFGH"), (Entries{0, 1, 2, 4, 5, 6, 7}));
}

TEST(MatcherTest, OutOfSyncNothingBehindTheNextMarkIsMatched) {
  Follower follower(ScriptOfLetters("ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
  follower.matcher.Expect(0, 8);
  EXPECT_EQ(follower.Run("ABCJKL"), (Entries{0, 1, 2, -1, -1, -1}));
  EXPECT_LE(follower.matcher.cursor(), 8);
  EXPECT_EQ(follower.Run("DEFGH"), (Entries{3, 4, 5, 6, 7}));
}

TEST(MatcherTest, ARunThatIsPastTheNextMarkIsFollowedAllTheSame) {
  Follower follower(ScriptOfLetters(kAlphabet));
  follower.matcher.Expect(0, 4);
  EXPECT_EQ(follower.Run("ABCDEFHIJKL"), (Entries{0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11}));
}

TEST(MatcherTest, AResizedRequestCostsOnlyItself) {
  Follower follower(ScriptOfLetters(kAlphabet));
  EXPECT_EQ(follower.Run("ABzDEFGHIJKL"), (Entries{0, 1, -1, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_TRUE(follower.matcher.in_sync());
}

TEST(MatcherTest, TwoSwappedRequestsBothFindTheirEntries) {
  Follower follower(ScriptOfLetters(kAlphabet));
  EXPECT_EQ(follower.Run("ABDCEFGHIJKLM"), (Entries{0, 1, 3, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(MatcherTest, AWrongGuessIsPutRightByTheRequestsThatFollow) {
  // The extra D looks like the later D, two entries ahead.
  Follower follower(ScriptOfLetters("ABCDEFGHIJKLMNOP"));
  const Entries entries = follower.Run(
      "AB"
      "D"
      "CDEFGHIJKLMN");
  EXPECT_EQ(Entries(entries.begin() + 3, entries.end()), (Entries{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
}

TEST(MatcherTest, AnExtraRequestOfACommonSizeIsNotTakenForTheNextOfThatSize) {
  // The second S could be the entry behind the left out 'e', or extra: served as that entry, its block would lie there
  // for nobody knows how long.
  Follower follower(ScriptOfLetters("SaSbScSdSeSfSgShSiSjSk"));
  follower.Run("SaSbScSd");
  EXPECT_EQ(follower.Run("SSeSfSg"), (Entries{8, -1, 9, 10, 11, 12, 13}));
}

TEST(MatcherTest, ARunThatLeavesALayerOutIsFoundAgainByItsAnchors) {
  // Forty entries left out: more than the alignment's band.
  std::string letters;
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) letters += static_cast<char>('A' + random() % 26);
  Follower follower(ScriptOfLetters(letters));
  follower.Run(letters.substr(0, 100));
  const Entries entries = follower.Run(letters.substr(160));
  for (std::size_t i = 30; i < entries.size(); ++i) ASSERT_EQ(entries[i], static_cast<int>(i + 160)) << i;
  EXPECT_GE(follower.matcher.times_reanchored(), 1u);
}

TEST(MatcherTest, AStepThatIsRunAgainIsFoundBackwards) {
  std::string letters;
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) letters += static_cast<char>('A' + random() % 26);
  Follower follower(ScriptOfLetters(letters));
  follower.Run(letters.substr(0, 200));
  const Entries entries = follower.Run(letters);  // from the start again
  for (std::size_t i = 30; i < entries.size(); ++i) ASSERT_EQ(entries[i], static_cast<int>(i)) << i;
}

TEST(MatcherTest, AnInterludeThatResemblesAnotherPartOfTheScriptEndsWhereItBegan) {
  // A layer of 20 entries, eight times, between two ends that are unlike anything else.
  std::string script = "0123456789";
  for (int layer = 0; layer < 8; ++layer) script += "ABCDEFGHIJKLMNOPQRST";
  script += "abcdefghijklmnop";
  Follower follower(ScriptOfLetters(script));
  follower.Run(script.substr(0, 10 + 2 * 20));
  follower.Run(script.substr(10 + 8 * 20));  // the tail in between: an evaluation without a fence
  const Entries entries = follower.Run(script.substr(10 + 2 * 20, 100));
  for (std::size_t i = 40; i < entries.size(); ++i) ASSERT_EQ(entries[i], static_cast<int>(10 + 2 * 20 + i)) << i;
}

TEST(MatcherTest, AnInterludeOfOtherSizesEndsWithTheFirstRequestsThatFollow) {
  // The interlude has, between sizes of its own, one that the end of the script has often.
  const std::string script = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + std::string(60, 's');
  Follower follower(ScriptOfLetters(script));
  for (int i = 0; i < 40; ++i) follower.Run("zzys");
  const Entries entries = follower.Run("ABCDEFGH");
  EXPECT_EQ(Entries(entries.begin() + 2, entries.end()), (Entries{2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(follower.matcher.in_sync());
}

TEST(MatcherTest, APartThatComesAgainIsNotTakenForTheWayBack) {
  // Three layers of one kind: the second is left out in the middle, and the run never goes back to the first.
  const std::string layer = "ABCDEFGHIJKLMNOPQRST";
  Follower follower(ScriptOfLetters("0123" + layer + layer + layer + "wxyz"));
  follower.Run("0123" + layer + "ABCDE");
  const Entries entries = follower.Run("FGHXIJKYLMNOPQRST" + layer + "wxyz");
  EXPECT_EQ(Entries(entries.end() - 4, entries.end()), (Entries{64, 65, 66, 67}));
}

std::string RandomLetters(std::mt19937* random, std::size_t count) {
  std::string letters;
  for (std::size_t i = 0; i < count; ++i) letters += static_cast<char>('A' + (*random)() % 26);
  return letters;
}

TEST(MatcherTest, APlaceOutsideThePhaseThatMarksTellIsNone) {
  std::mt19937 random(5);
  const std::string before = RandomLetters(&random, 40);
  const std::string phase = RandomLetters(&random, 120);
  const Script script = ScriptOfLetters(before + phase + phase);
  for (const int begin : {40, 160}) {
    Follower follower(script);
    follower.Run(before);
    follower.matcher.Expect(begin, begin + 120);
    const Entries entries = follower.Run(phase.substr(60));
    for (std::size_t i = 30; i < entries.size(); ++i) ASSERT_EQ(entries[i], begin + 60 + static_cast<int>(i)) << i;
  }
}

TEST(MatcherTest, ALongerHistoryFarAwayIsNoBetterThanAShorterOneNearby) {
  std::mt19937 random(6);
  const std::string before = RandomLetters(&random, 40);
  const std::string chance = RandomLetters(&random, 4);
  const std::string common = RandomLetters(&random, 12);
  const std::string after = RandomLetters(&random, 40);
  std::string script = before + RandomLetters(&random, 60) + common;
  const std::size_t near = script.size();
  script += after + RandomLetters(&random, 400) + chance + common + RandomLetters(&random, 60);
  Follower follower(ScriptOfLetters(script));
  follower.Run(before + chance + common);
  const Entries entries = follower.Run(after);
  for (std::size_t i = 0; i < entries.size(); ++i) ASSERT_EQ(entries[i], static_cast<int>(near + i)) << i;
}

TEST(MatcherTest, OneMoreRequestBehindTheExpertsCostsOnlyItself) {
  Script script = ScriptOfLetters(
      "ABCDEFGHIJKLMNO"
      "eehX"
      "eehX"
      "XPQRSTUVW");
  for (const std::size_t i : {15, 16, 17, 19, 20, 21}) Varying(script, i, 'a', 'k');
  Follower follower(script);
  follower.Run(
      "ABCDEFGHIJKLMNO"
      "ffgX"
      "ggfX");
  follower.Run("z");
  EXPECT_EQ(follower.Run("XPQRSTUVW"), (Entries{23, 24, 25, 26, 27, 28, 29, 30, 31}));
}

TEST(MatcherTest, AVaryingEntryMatchesOtherSizesAndKeepsTheTrack) {
  Script script = ScriptOfLetters(kAlphabet);
  Varying(script, 3, 'h', 'p');
  Follower follower(script);
  follower.Run("ABC");
  const Matcher::Match varying = follower.Next('k');
  EXPECT_EQ(varying.outcome, Outcome::kVarying);
  EXPECT_EQ(varying.entry, 3);
  EXPECT_EQ(follower.Run("EFG"), (Entries{4, 5, 6}));
  EXPECT_TRUE(follower.matcher.in_sync());
}

TEST(MatcherTest, AVaryingEntryThatIsMissingDoesNotTakeTheNextOnesPlace) {
  Script script = ScriptOfLetters(kAlphabet);
  Varying(script, 3, 'A', 'Z');  // could be any of the others
  Follower follower(script);
  follower.Run("ABC");
  const Entries entries = follower.Run("EFGHIJKLMNO");  // entry 3 is left out, so E is taken for it
  EXPECT_EQ(Entries(entries.begin() + 1, entries.end()), (Entries{5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
}

TEST(MatcherTest, AnOptionalEntryIsLeftOutMoreReadilyThanARequestIsCalledExtra) {
  Script script = ScriptOfLetters("ABCDEFGHIJKLMNOPQRST");
  EXPECT_EQ(Follower(script).Run("ABCH"), (Entries{0, 1, 2, -1}));
  for (std::size_t i = 3; i < 7; ++i) script.entries[i].entry_class = EntryClass::kOptional;
  EXPECT_EQ(Follower(script).Run("ABCH"), (Entries{0, 1, 2, 7}));
}

TEST(MatcherTest, PastTheEndOfTheScriptNothingMatchesUntilFollowedAnew) {
  Follower follower(ScriptOfLetters("ABCDEF"));
  follower.Run("ABCDEF");
  EXPECT_EQ(follower.Next('B').entry, -1);
  EXPECT_EQ(follower.Next('z').outcome, Outcome::kUnknownSize);
  follower.matcher.Follow(&follower.index, 2);
  EXPECT_EQ(follower.Run("CD"), (Entries{2, 3}));
}

TEST(MatcherTest, AnEmptyScriptAndNoScriptMatchNothing) {
  Follower empty{Script{}};
  EXPECT_EQ(empty.Next('A').outcome, Outcome::kUnknownSize);
  Matcher none;
  EXPECT_EQ(none.Next(5).outcome, Outcome::kUnknownSize);
  none.Follow(nullptr, 0);
  EXPECT_EQ(none.Next(5).entry, -1);
}

TEST(MatcherTest, SizesBeyondAnyPlanAreUnknown) {
  Follower follower(ScriptOfLetters("ABC"));
  EXPECT_EQ(follower.matcher.Next(ToGranules(~Bytes{0} - 4096)).outcome, Outcome::kUnknownSize);
  EXPECT_EQ(follower.Run("ABC"), (Entries{0, 1, 2}));
}

TEST(MatcherTest, NorAreTheyAnEntryThatVaries) {
  Script script = ScriptOfLetters("ABCD");
  for (std::size_t entry = 0; entry < 4; ++entry) Varying(script, entry, '\1', 'Z');
  Follower follower(script);
  const Granules too_large = ToGranules(~Bytes{0} - 4096);
  EXPECT_EQ(follower.matcher.Next(too_large).outcome, Outcome::kUnknownSize);
  follower.Run("zzz");  // out of sync, too
  EXPECT_EQ(follower.matcher.Next(too_large).outcome, Outcome::kUnknownSize);
}

// Whatever comes, an answer names an entry of the script, of the size that was asked for, and the matcher stays in
// bounds.
TEST(MatcherTest, RandomRequestsAreNeverMatchedToEntriesOfAnotherSize) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::string letters;
    for (std::uint64_t i = 0, length = random() % 120; i < length; ++i)
      letters += static_cast<char>('A' + random() % 6);
    Follower follower(ScriptOfLetters(letters));
    for (int i = 0; i < 5000; ++i) {
      const char letter = static_cast<char>('A' + random() % 8);
      const Matcher::Match match = follower.Next(letter);
      ASSERT_LT(match.entry, static_cast<int>(letters.size()));
      if (match.entry >= 0) {
        ASSERT_EQ(match.outcome, Outcome::kMatched);
        ASSERT_EQ(letters[static_cast<std::size_t>(match.entry)], letter);
      }
      if (random() % 500 == 0)
        follower.matcher.Follow(&follower.index, static_cast<int>(random() % (letters.size() + 1)));
    }
  }
}

TEST(ScriptIndexTest, ASizeThatAVaryingEntryCouldWellHaveIsNoAnchor) {
  Script script = ScriptOfLetters("AABBCC");
  Varying(script, 2, '@', 'B');  // '@', 'A' and 'B' are as likely
  const ScriptIndex index(script);
  EXPECT_FALSE(index.IsAnchorSize('A'));
  EXPECT_FALSE(index.IsAnchorSize('B'));
  EXPECT_TRUE(index.IsAnchorSize('C'));
  EXPECT_TRUE(index.WeaklyMatches(0, 'B'));   // near enough to be the same entry, counted wrongly as static
  EXPECT_FALSE(index.WeaklyMatches(4, 'B'));  // an anchor matches exactly or not at all
}

TEST(ScriptIndexTest, RareSizesAreWorthMoreThanCommonOnes) {
  const ScriptIndex index(ScriptOfLetters("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB"));
  EXPECT_LT(index.InfoOf('A').worth, index.InfoOf('B').worth);
}

}  // namespace matcher_test
}  // namespace stalloc
