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
    boost::asio::any_io_executor disk;  ///< makes the store durable at the end; needed with a writer
    std::shared_ptr<StoreWriter>
        writer;  ///< takes what the store lacks, and gives what it has; null: nothing is written
    std::shared_ptr<StoreReader> reader;  ///< without a writer: where rows are read
    bool reads = true;                    ///< what the store has is read from it; false: it is asked for all the same
    /// Answers that the store cannot keep (it lacks a position, say) are handed on as they are; else they are failures.
    bool passes_what_it_cannot_keep = false;
    /// Told, on `io`, when rows cannot be written or read, once until that is over. May be empty.
    std::function<void(const std::string&)> on_warning;
};

/// A teacher with a store in front of it: rows that the store has are not asked for, and others are written into it
/// when they are decoded. Whatever comes, from the store or from the teacher, is what the store gives for these rows,
/// so that a second epoch, or a job that trains on the store alone, sees the same bits. A store that cannot be written
/// (its disk is full, say) does not hold the training up: what is lacking is asked for again by whoever needs it. Of a
/// damaged row the teacher is asked. `teacher` has been probed; there is a writer or a reader, both being of its rows.
[[nodiscard]] std::unique_ptr<TeacherSource> make_caching_teacher(boost::asio::any_io_executor io,
                                                                  std::unique_ptr<TeacherSource> teacher,
                                                                  CachingTeacherOptions options);

}  // namespace distilld
