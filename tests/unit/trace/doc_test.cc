// docs/trace-format.md holds the schema that this build has.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/collective.h"
#include "core/schema.h"
#include "trace/file/schema_text.h"

namespace lockstep::trace {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TraceFormatDoc, GeneratedPartIsTheSchema) {
  const std::string doc = ReadText(LOCKSTEP_SOURCE_DIR "/docs/trace-format.md");
  const std::string begin = "<!-- lockstep info --schema: begin -->\n", end = "<!-- lockstep info --schema: end -->\n";
  const std::size_t from = doc.find(begin), to = doc.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_TRUE(doc.substr(from + begin.size(), to - from - begin.size()) == SchemaMarkdown())
      << "docs/trace-format.md is out of date: replace what is between the markers by the output of lockstep info "
         "--schema";
}

TEST(TraceFormatDoc, EveryTableIsListedOnce) {
  const std::string text = SchemaMarkdown();
  for (const schema::TableInfo& table : schema::kRankTableInfos)
    EXPECT_NE(text.find("### `" + std::string(table.name) + "`"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trace
