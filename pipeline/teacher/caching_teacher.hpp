#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct CachingTeacherOptions {
    boost::asio::any_io_executor disk;    ///< makes the store durable at the end; needed with a writer
    std::shared_ptr<StoreWriter> writer;  ///< writes missing rows and reads present ones; null: nothing is written
    std::shared_ptr<StoreReader> reader;  ///< without a writer: reads rows
    bool reads = true;                    ///< rows of the store are read; false: they are requested again
    /// Answers that the store cannot keep (for example without a position) are passed on unchanged; otherwise, they are
    /// failures.
    bool passes_what_it_cannot_keep = false;
    /// Called on `io` when rows cannot be written or read, once per outage. May be empty.
    std::function<void(const std::string&)> on_warning;
};

/// A teacher behind a store: rows in the store are not requested, others are written to it when decoded. Answers are
/// always what the store returns for a row, so a second epoch, or a job on the store alone, sees the same bits. If the
/// store cannot be written (for example on a full disk), training continues, and missing rows are requested again. A
/// damaged row is requested from the teacher. `teacher` has been probed. `options` has a writer or a reader, for the
/// rows of `teacher`.
[[nodiscard]] std::unique_ptr<TeacherSource> make_caching_teacher(boost::asio::any_io_executor io,
                                                                  std::unique_ptr<TeacherSource> teacher,
                                                                  CachingTeacherOptions options);

}  // namespace distilld
