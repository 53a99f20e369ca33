#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "pipeline/store/store_reader.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct StoreTeacherOptions {
    /// Timeout for unsealed rows while no shard is sealed.
    std::chrono::nanoseconds outage_timeout = std::chrono::minutes(30);
    /// Interval between looks for new shards during a wait.
    std::chrono::nanoseconds poll = std::chrono::milliseconds(250);
    /// Delay before a wait is reported.
    std::chrono::nanoseconds quiet = std::chrono::seconds(2);
    /// Minimum interval between reported waits, and between reports of one.
    std::chrono::nanoseconds repeat = std::chrono::seconds(10);
    /// Called on `io` when a wait begins and when its writer has progressed; an empty text ends it. May be empty.
    std::function<void(const std::string&)> on_waiting;
};

/// Answers from a store that is complete or still being written: a fetch waits until its rows are sealed. It fails only
/// if nothing was sealed for `outage_timeout` (FailureKind::rejected: a retry is useless), or at once for a damaged row
/// or a shard file of the wrong size (the file is named). Deadlines of fetches are ignored, because no request is sent.
/// `io` runs one thread; `disk` looks for new shards. The caller has checked the manifest (check_store()).
[[nodiscard]] std::unique_ptr<TeacherSource> make_store_teacher(boost::asio::any_io_executor io,
                                                                boost::asio::any_io_executor disk,
                                                                std::shared_ptr<StoreReader> reader,
                                                                StoreTeacherOptions options = {});

/// What a student requires of a store.
struct StoreWish {
    std::string dataset_hash;
    std::uint64_t rows = 0;
    std::uint32_t sequence_length = 0;
    std::uint32_t vocabulary = 0;           ///< of the student
    std::uint32_t top_k = 0;                ///< 0 = as in the store
    std::string tokenizer_hash = {};        ///< empty = unknown
    std::vector<std::string> outputs = {};  ///< of a teacher of samples, by name
};

/// Checks that the store belongs to the data. Errors (invalid_input) begin with /teacher/store and name both values.
[[nodiscard]] Result<void> check_store(const StoreManifest& manifest, const StoreWish& wish);

/// Size of the targets that are read from the store.
[[nodiscard]] AnswerSize stored_answer_size(const StoreManifest& manifest, std::uint32_t rows, std::uint32_t columns);

}  // namespace distilld
