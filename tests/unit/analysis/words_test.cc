// The placeholders of sentences, and that the table of sentences uses them rightly.

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "analysis/words/render.h"

namespace lockstep::analysis {
namespace {

// As clause.h orders them.
const std::map<Word, std::string_view> kNames = {
#define LS_WORD(id, text) {Word::id, #id},
#define LS_FINDING(...)
#define LS_CAUSE(...)
#include "analysis/words/words.def"
#undef LS_WORD
#undef LS_FINDING
#undef LS_CAUSE
};

TEST(Words, FactsHaveTheFormOfTheirUnit) {
  const auto gain = [](Value gain, Value sampled = {}, bool average = false) {
    return Rendered(Say(Word::kStepShorter,
                        {{"whole", Ns{20'000'000}}, {"gain", gain}, {"average", average}, {"sampled", sampled}}));
  };
  EXPECT_EQ(gain(Ns{1'500'000}), "each 20 ms step would be 1.5 ms shorter (replayed)");
  EXPECT_EQ(gain(Share{0.25}, std::string("40 of 400 steps"), true),
            "each 20 ms step would be 25 % shorter on average (replayed, 40 of 400 steps)");
  EXPECT_EQ(gain(Size{1'420'000'000}), "each 20 ms step would be 1.42 GB shorter (replayed)");
  EXPECT_EQ(gain(Rate{13.3e9}), "each 20 ms step would be 13.3 GB/s shorter (replayed)");
  EXPECT_EQ(gain(Num{1842}), "each 20 ms step would be 1 842 shorter (replayed)");
  EXPECT_EQ(gain(Index{1842}), "each 20 ms step would be 1842 shorter (replayed)");
  EXPECT_EQ(gain(Probability{0.0001}), "each 20 ms step would be < 0.001 shorter (replayed)");
  EXPECT_EQ(gain(Ranks{{3, 17, 412}}), "each 20 ms step would be ranks 3, 17 and 412 shorter (replayed)");
  EXPECT_EQ(gain(Names{{"a", "b"}}), "each 20 ms step would be a and b shorter (replayed)");
  EXPECT_EQ(gain(Part{2'000'000, 10'000'000, true}),
            "each 20 ms step would be 2 ms of each 10 ms step shorter (replayed)");
  EXPECT_EQ(gain(Part{2'000'000, 10'000'000, false}), "each 20 ms step would be 20 % of the time shorter (replayed)");
}

TEST(Words, APartWithoutItsFactIsLeftOut) {
  const auto same = [](Value took) {
    return Rendered(Say(Word::kSameWaiting, {{"brief", std::string("waiting")}, {"took", took}}));
  };
  EXPECT_EQ(same({}), "the same waiting also shows as: waiting");
  EXPECT_EQ(same(Ns{5'000}), "the same waiting also shows as: waiting (5 us)");
  // A fact that a sentence needs and nobody gave is seen.
  EXPECT_EQ(Rendered(Say(Word::kIfNoSendWaited)), "if no send waited, {shorter}");
}

TEST(Words, OneOrMore) {
  const auto spread = [](std::int64_t n) {
    return Rendered(
        Say(Word::kWithoutWhatSlows, {{"stragglers", Num{n}}, {"shorter", std::string("x")}, {"spread", {}}}));
  };
  EXPECT_EQ(spread(1), ": without what slows it, x");
  EXPECT_EQ(spread(2), ": without what slows them, x");
}

TEST(Words, PartsAreSetOff) {
  const Clause x = Say(Word::kIfNoSendWaited, {{"shorter", std::string("x")}});
  EXPECT_EQ(Joined({x, x}), "if no send waited, x; if no send waited, x");
  EXPECT_EQ(Joined({x, Say(Word::kExtrapolated)}),
            "if no send waited, x; extrapolated: no transfer of that size was measured");
  EXPECT_EQ(Joined({}), "");
}

TEST(Words, FactsOfSentencesByName) {
  const Said said{
      .headline = {Say(Word::kIfNoSendWaited, {{"shorter", Clauses{{Say(Word::kStepShorter, {{"gain", Ns{7}}})}}}})},
      .brief = {},
      .evidence = {Say(Word::kSameWaiting, {{"took", {}}, {"gain", Ns{8}}})},
      .action = {}};
  const NamedFacts facts = FactsOf(said);
  ASSERT_EQ(facts.all.size(), 1u);  // The first of a name; what is not known is none.
  EXPECT_EQ(facts.all[0].name, "gain");
  EXPECT_EQ(facts.all[0].value, Value(Ns{7}));
}

// Whether braces are paired and placeholders have a form that render.h knows.
TEST(Words, EachRowIsWellFormed) {
  const std::regex placeholder(R"(\{\^?[a-z_]+(:[a-z .0-9+-]+|\?[^{}|]*\|[^{}|]*)?\})");
  std::set<std::string_view> texts;
  for (const auto& [word, name] : kNames) {
    const std::string text(TextOf(word));
    std::string rest = std::regex_replace(text, placeholder, "");
    const auto count = [&](std::string_view part) {
      std::size_t n = 0;
      for (std::size_t at = rest.find(part); at != std::string::npos; at = rest.find(part, at + 1)) ++n;
      return n;
    };
    EXPECT_EQ(count("{["), count("]}")) << name << ": " << text;
    EXPECT_EQ(count("{"), count("{[")) << name << ": " << rest;
    EXPECT_EQ(count("}"), count("]}")) << name << ": " << rest;
    EXPECT_EQ(text.find("  ", text.find_first_not_of(' ')), std::string::npos) << name;  // An indent may come first.
    EXPECT_FALSE(text.empty() || text.ends_with(' ')) << name;
    EXPECT_TRUE(texts.insert(TextOf(word)).second) << name << " says what another row says: " << text;
  }
}

}  // namespace
}  // namespace lockstep::analysis
