#pragma once

#include <algorithm>
#include <array>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/async/tuple.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld::test {

/// Rows of four positions, the last of which has no target; row r is made of the token r % 7.
class NumberedRows final : public Dataset {
  public:
    static constexpr std::uint32_t kColumns = 4;

    explicit NumberedRows(std::uint64_t rows) : rows_(rows) {}

    std::uint64_t row_count() const override { return rows_; }
    std::uint64_t token_count() const override { return rows_ * kColumns; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch made;
        made.number = number;
        made.rows = static_cast<std::uint32_t>(rows.size());
        made.columns = kColumns;
        made.row_ids = rows;
        for (const std::uint64_t row : rows) {
            made.input_ids.insert(made.input_ids.end(), kColumns, static_cast<std::int32_t>(row % 7));
            made.labels.insert(made.labels.end(), {1, 1, 1, kIgnoredLabel});
            made.lengths.push_back(kColumns);
        }
        made.target_tokens = rows.size() * 3;
        return made;
    }
    std::uint64_t target_tokens(std::uint64_t) const override { return 3; }

  private:
    std::uint64_t rows_;
    std::string hash_ = "numbered";
};

/// Two of seven tokens of each position, of which the first follows from row and position; f16 and f32.
inline TeacherTargets topk_targets(const TokenBatch& batch) {
    constexpr std::array<std::uint16_t, 2> kValues{0xBC00, 0xC000};  // −1, −2
    struct Arrays {
        std::vector<std::int32_t> ids;
        std::vector<std::uint16_t> values;
        std::vector<float> tail;
    };
    auto arrays = std::make_shared<Arrays>();
    for (const std::uint64_t row : batch.row_ids) {
        for (std::uint32_t t = 0; t < batch.columns; ++t) {
            const auto first = static_cast<std::int32_t>((row * 3 + t) % 7);
            arrays->ids.insert(arrays->ids.end(), {first, (first + 1) % 7});
            arrays->values.insert(arrays->values.end(), kValues.begin(), kValues.end());
            arrays->tail.push_back(static_cast<float>(std::log(1 - std::exp(-1.0) - std::exp(-2.0))));
        }
    }
    TeacherTargets targets;
    targets.rows = batch.rows;
    targets.columns = batch.columns;
    targets.width = 2;
    targets.vocabulary = 7;
    targets.ids = {ElementType::i32, std::as_bytes(std::span(arrays->ids))};
    targets.values = {ElementType::f16, std::as_bytes(std::span(arrays->values))};
    targets.tail = {ElementType::f32, std::as_bytes(std::span(arrays->tail))};
    targets.owner = arrays;
    return targets;
}

/// The store of topk_targets() for so many rows.
inline StoreManifest topk_manifest(std::uint64_t rows, std::uint32_t shard_rows) {
    StoreManifest manifest;
    manifest.format = StoreFormat::topk;
    manifest.k = 2;
    manifest.vocabulary = 7;
    manifest.rows = rows;
    manifest.sequence_length = NumberedRows::kColumns;
    manifest.shard_rows = shard_rows;
    manifest.dataset_hash = "numbered";
    return manifest;
}

inline std::vector<std::byte> bytes_of(const ArrayView& array) {
    return {array.bytes.begin(), array.bytes.end()};
}

/// A source in the process that answers topk_targets(), at one or several endpoints.
class TopkTeacher final : public TeacherSource {
  public:
    explicit TopkTeacher(std::size_t endpoints = 1) {
        for (std::size_t i = 0; i < endpoints; ++i) {
            names_.push_back("teacher-" + std::to_string(i));
        }
    }

    std::size_t endpoint_count() const override { return names_.size(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return names_.at(endpoint); }
    boost::asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override {
        TeacherInfo info;
        info.top_k = 2;
        info.vocabulary_size = 7;
        co_return info;
    }
    AnswerSize answer_size(std::uint32_t, std::uint32_t) const override { return {0, 100}; }
    boost::asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint,
                                                             std::shared_ptr<const TokenBatch> tokens,
                                                             std::chrono::nanoseconds) override {
        if (latency.count() > 0) {
            boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor, latency);
            auto waiting = timer.async_wait(kTuple);
            if (const auto [error] = co_await std::move(waiting); error) {
                co_return FetchError{FailureKind::cancelled, "cancelled", {}};
            }
        }
        ++fetches;
        if (fails && fails(endpoint)) {
            co_return FetchError{FailureKind::connection, names_[endpoint] + ": refused", {}};
        }
        for (const std::uint64_t row : tokens->row_ids) {
            ++answered[row];
        }
        by_endpoint[endpoint] += tokens->row_ids.size();
        co_return EncodedAnswer(topk_targets(*tokens));
    }
    void close() override { closed = true; }

    std::chrono::microseconds latency{0};
    std::function<bool(std::size_t endpoint)> fails;
    std::size_t fetches = 0;
    std::map<std::uint64_t, int> answered;  ///< times, by row
    std::map<std::size_t, std::uint64_t> by_endpoint;
    bool closed = false;

  private:
    std::vector<std::string> names_;
};

}  // namespace distilld::test
