// Names of functions come from the program and may hold anything: what flame graph tools read is as many frames.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "export/common/writers.h"
#include "export/stacks/sampled.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;

const std::vector<std::string> kNames = {"a;b c",     "x\ny\t1", std::string("\xff\xfe") + "\"q\\",
                                         "\u202egnp", "",        "12 34"};

class HostileStacks : public testing::Test {
 protected:
  HostileStacks() : timeline_(merge::MakeTimeline("run", {})), clock_(schema::Clock{}, 3) {
    trace::StringInterner<schema::Strings, schema::StringBytes> strings(tables_.strings, tables_.string_bytes);
    for (std::size_t i = 0; i < kNames.size(); ++i)
      tables_.stacks.Append({.parent = i == 0 ? kNone : static_cast<std::uint32_t>(i - 1),
                             .function = strings.Intern(kNames[i]),
                             .file = i % 2 == 0 ? kNone : strings.Intern("dir;1/" + kNames[i]),
                             .line = static_cast<std::uint32_t>(i)});
    const auto last = static_cast<std::uint32_t>(kNames.size() - 1);
    // The last one is of a row that is not there.
    for (const std::uint32_t stack : {last, last, 0u, kNone, 4'000'000'000u})
      tables_.samples.Append({.time_ns = 5, .thread = kNone, .stack = stack});
    path_ = testing::TempDir() + "hostile_stacks" + std::to_string(::getpid());
  }
  ~HostileStacks() override { std::filesystem::remove(path_); }

  std::string Written(std::unique_ptr<Writer> writer) {
    ExportRun run;
    run.timeline = &timeline_;
    run.output = path_;
    ExportRank rank;
    rank.rank = 3;
    rank.title = "rank 3 \"";
    rank.head = &tables_;
    rank.clock = &clock_;
    EXPECT_TRUE(writer->Begin(run).ok());
    EXPECT_TRUE(writer->BeginRank(rank).ok());
    EXPECT_TRUE(writer->EndRank().ok());
    EXPECT_TRUE(writer->Finish().ok());
    EXPECT_EQ(writer->samples(), 5u);
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  merge::Timeline timeline_;
  merge::ClockMap clock_;
  schema::RankTables tables_;
  std::string path_;
};

TEST_F(HostileStacks, SpeedscopeIsJsonWithEveryFrame) {
  const auto made = nlohmann::json::parse(Written(MakeSpeedscopeWriter({})));
  ASSERT_EQ(made["profiles"].size(), 1u);
  EXPECT_EQ(made["profiles"][0]["name"], "rank 3 \"");
  const auto& samples = made["profiles"][0]["samples"];
  ASSERT_EQ(samples.size(), 5u);
  EXPECT_EQ(samples[0].size(), kNames.size());
  EXPECT_EQ(samples[2].size(), 1u);
  const auto& frames = made["shared"]["frames"];
  EXPECT_EQ(frames[samples[0][0].get<std::size_t>()]["name"], kNames[0]);
  EXPECT_EQ(frames[samples[0][1].get<std::size_t>()]["name"], kNames[1]);
  EXPECT_EQ(frames[samples[3][0].get<std::size_t>()]["name"], "(inside communication)");
  EXPECT_FALSE(frames[samples[0][0].get<std::size_t>()].contains("line"));
  EXPECT_EQ(frames[samples[0][1].get<std::size_t>()]["line"], 1);
}

TEST_F(HostileStacks, CollapsedHasALinePerStackAndAFramePerFunction) {
  std::istringstream text(Written(MakeCollapsedWriter({})));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u);
  std::size_t whole = 0, sum = 0;
  for (const std::string& line : lines) {
    const std::size_t count = line.rfind(' ');
    sum += std::stoul(line.substr(count + 1));
    const std::string stack = line.substr(0, count);
    EXPECT_TRUE(stack.starts_with("rank 3;")) << line;
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << line;
    if (std::count(stack.begin(), stack.end(), ';') == static_cast<std::ptrdiff_t>(kNames.size())) {
      ++whole;
      EXPECT_EQ(line.substr(count + 1), "2");
      EXPECT_TRUE(stack.ends_with(";12 34 (dir:1/12 34)")) << line;
    }
  }
  EXPECT_EQ(whole, 1u);
  EXPECT_EQ(sum, 5u);
}

}  // namespace
}  // namespace lockstep::exporters
