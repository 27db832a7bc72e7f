#pragma once
// The schema as Markdown: the generated part of docs/trace-format.md.

#include <string>

namespace lockstep {

std::string SchemaMarkdown();

}  // namespace lockstep
