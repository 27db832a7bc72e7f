#pragma once
// The writers, each in its own file; formats.cc lists them.

#include <memory>

#include "export/common/writer.h"

namespace lockstep::exporters {

std::unique_ptr<Writer> MakePerfettoWriter(const WriterOptions& options);
std::unique_ptr<Writer> MakeChromeWriter(const WriterOptions& options);
std::unique_ptr<Writer> MakeKinetoWriter(const WriterOptions& options);
std::unique_ptr<Writer> MakeCsvWriter(const WriterOptions& options);
std::unique_ptr<Writer> MakeSpeedscopeWriter(const WriterOptions& options);
std::unique_ptr<Writer> MakeCollapsedWriter(const WriterOptions& options);
std::unique_ptr<Writer> MakeOtf2Writer(const WriterOptions& options);  // Defined where OTF2 is (LOCKSTEP_OTF2).

}  // namespace lockstep::exporters
