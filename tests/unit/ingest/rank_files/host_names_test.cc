// Which ranks were on one host, and what it is called.

#include "ingest/rank_files/host_names.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

using Meta = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> NamesOf(const std::vector<Meta>& ranks) {
  std::vector<schema::RankTables> tables(ranks.size());
  std::vector<const schema::RankTables*> heads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    trace::StringInterner strings(tables[r].strings, tables[r].string_bytes);
    for (const auto& [key, value] : ranks[r])
      tables[r].meta.Append({.key = strings.Intern(key), .value = strings.Intern(value)});
    heads.push_back(&tables[r]);
  }
  const HostNames hosts(heads);
  std::vector<std::string> names;
  for (const auto* head : heads) names.push_back(hosts.Of(*head));
  return names;
}

Meta On(const std::string& name, const std::string& boot) { return {{"node", name}, {"boot_id", boot}}; }

using Names = std::vector<std::string>;

TEST(HostNames, AreTheHostsOwnWhereTheyDiffer) {
  EXPECT_EQ(NamesOf({}), Names());
  EXPECT_EQ(NamesOf({On("a", "1"), On("a", "1"), On("b", "2")}), (Names{"a", "a", "b"}));
  EXPECT_EQ(NamesOf({On("a", "1"), On("b", "1")}), (Names{"a", "b"})) << "containers of one boot";
}

TEST(HostNames, TellHostsApartThatShareAName) {
  EXPECT_EQ(NamesOf({On("a", "9"), On("b", "3"), On("a", "1"), On("a", "9"), On("a", "0")}),
            (Names{"a#1", "b", "a#2", "a#1", "a#3"}));
  // What one host really is called, another is not given as a number.
  EXPECT_EQ(NamesOf({On("a", "1"), On("a#2", "2"), On("a", "3")}), (Names{"a#1", "a#2", "a#3"}));
}

TEST(HostNames, OfFilesThatDoNotSayTheBoot) {
  EXPECT_EQ(NamesOf({{{"node", "a"}}, {{"host", "a"}}, {}}), (Names{"a", "a", ""}));
  EXPECT_EQ(NamesOf({{{"node", "a"}}, On("a", "1")}), (Names{"a", "a"})) << "there is no other it can be of";
  EXPECT_EQ(NamesOf({On("a", "1"), {{"node", "a"}}, On("a", "2")}), (Names{"a#1", "a#2", "a#3"}));
  EXPECT_EQ(NamesOf({{{"boot_id", "1"}}, {{"boot_id", "2"}}}), (Names{"", ""}));
}

}  // namespace
}  // namespace lockstep::ingest
