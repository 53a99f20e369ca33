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
    /// How long rows that are not sealed yet are waited for while no shard is sealed.
    std::chrono::nanoseconds patience = std::chrono::minutes(30);
    /// Between two looks for new shards, while somebody waits.
    std::chrono::nanoseconds poll = std::chrono::milliseconds(250);
    /// So long nothing could be answered before it is said that the run waits.
    std::chrono::nanoseconds quiet = std::chrono::seconds(2);
    /// Between the beginnings of two waits that are told of, and between two texts of one.
    std::chrono::nanoseconds repeat = std::chrono::seconds(10);
    /// Told when a wait begins, and again when its writer has gone on; an empty text says that it is over. On `io`. May
    /// be empty.
    std::function<void(const std::string&)> on_waiting;
};

/// Answers from a store that is complete or that writers are still at: a fetch of rows that are not sealed yet waits
/// until they are. Only when nothing was sealed for `patience` does it fail (FailureKind::rejected: asking again is of
/// no use), and so does, at once, a row that is damaged or in a shard whose file has another size than was sealed (the
/// file is named). A fetch's deadline does not count, since
/// nobody was asked. `io` runs one thread; `disk` looks for new shards. What the store is of has been checked before
/// (check_store()).
[[nodiscard]] std::unique_ptr<TeacherSource> make_store_teacher(boost::asio::any_io_executor io,
                                                                boost::asio::any_io_executor disk,
                                                                std::shared_ptr<StoreReader> reader,
                                                                StoreTeacherOptions options = {});

/// What a student has to find in a store.
struct StoreWish {
    std::string dataset_hash;
    std::uint64_t rows = 0;
    std::uint32_t sequence_length = 0;
    std::uint32_t vocabulary = 0;     ///< of the student
    std::uint32_t top_k = 0;          ///< 0 = as the store has it
    std::string tokenizer_hash = {};  ///< empty = not known
};

/// Whether the store is of these data; the error (invalid_input) begins with /teacher/store and names both values.
[[nodiscard]] Result<void> check_store(const StoreManifest& manifest, const StoreWish& wish);

/// Of targets that are read from such a store.
[[nodiscard]] AnswerSize stored_answer_size(const StoreManifest& manifest, std::uint32_t rows, std::uint32_t columns);

}  // namespace distilld
