#include "pipeline/teacher/store_teacher.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <optional>
#include <utility>

#include "base/time.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kMending = " (remove it, and the next generate job writes it again)";

std::string entries_of(const StoreManifest& manifest) {
    switch (manifest.format) {
        case StoreFormat::full:
            return "full logits of " + std::to_string(manifest.vocabulary) + " tokens";
        case StoreFormat::sampled:
            return std::to_string(manifest.samples) + " samples";
        case StoreFormat::topp:
            return "top-p " + std::to_string(manifest.p) + " of at most " + std::to_string(manifest.k) + " entries";
        case StoreFormat::tensors: {
            std::string names;
            for (const StoredTensor& tensor : manifest.tensors) {
                names += (names.empty() ? "outputs " : ", ") + tensor.name;
            }
            return names;
        }
        case StoreFormat::topk:
        case StoreFormat::packed:
            break;
    }
    return std::string(to_string(manifest.format)) + " of " + std::to_string(manifest.k) + " entries";
}

/// Reads rows from the store on the thread that decodes.
class StoreDecoder final : public EncodedAnswer::Decoder {
  public:
    StoreDecoder(std::shared_ptr<StoreReader> reader, std::shared_ptr<const TokenBatch> tokens)
        : reader_(std::move(reader)), tokens_(std::move(tokens)) {}

    FetchResult<TeacherTargets> decode() override {
        Result<TeacherTargets> targets = reader_->read(*tokens_);
        if (!targets) {
            return FetchError{FailureKind::rejected, targets.error().message, std::nullopt};
        }
        return std::move(*targets);
    }

  private:
    std::shared_ptr<StoreReader> reader_;
    std::shared_ptr<const TokenBatch> tokens_;
};

class StoreTeacher final : public TeacherSource {
  public:
    StoreTeacher(asio::any_io_executor io, asio::any_io_executor disk, std::shared_ptr<StoreReader> reader,
                 StoreTeacherOptions options)
        : disk_(std::move(disk)),
          reader_(std::move(reader)),
          options_(std::move(options)),
          name_(reader_->folder().string()),
          changed_(std::move(io)) {}

    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return name_; }

    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override {
        const StoreManifest& manifest = reader_->manifest();
        TeacherInfo info;
        const bool full = manifest.format == StoreFormat::full;
        info.kind = full ? TeacherTargets::Kind::logits : TeacherTargets::Kind::topk;
        if (manifest.format == StoreFormat::tensors) {
            info.kind = TeacherTargets::Kind::tensors;
            for (const StoredTensor& tensor : manifest.tensors) {
                info.tensors.push_back({tensor.name, tensor.shape, {}});
            }
        }
        info.vocabulary_size = manifest.vocabulary;
        info.top_k = full ? 0 : std::max(manifest.k, manifest.samples);
        info.width = full ? static_cast<std::uint32_t>(manifest.vocabulary) : info.top_k;
        info.fingerprint = manifest.teacher;
        info.tokenizer.hash = manifest.teacher_tokenizer;
        info.description = name_ + ": " + entries_of(manifest) + ", " + sealed_text();
        if (!manifest.teacher_name.empty()) {
            info.description += ", by " + manifest.teacher_name;
        }
        co_return info;
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        return stored_answer_size(reader_->manifest(), rows, columns);
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds) override {
        try {
            const FetchResult<void> sealed = co_await until_sealed(tokens);
            if (!sealed) {
                co_return sealed.error();
            }
        } catch (const boost::system::system_error& failure) {
            if (!is_abort(failure.code())) {
                throw;
            }
            co_return FetchError{FailureKind::cancelled, name_ + ": cancelled", std::nullopt};
        }
        news_ = Clock::now();
        tell_over();
        co_return EncodedAnswer(std::make_unique<StoreDecoder>(reader_, std::move(tokens)), 0);
    }

    bool is_slow_by_chance() const override { return false; }
    std::optional<StoreCounters> store() const override {
        const std::uint64_t sealed = reader_->sealed_rows();
        if (counters_.sealed_rows != sealed || sealed == 0) {
            counters_ = {reader_->manifest().rows, sealed, sealed, 0};
            for (const StoreShard& shard : reader_->shards()) {
                counters_.sealed_bytes += shard.bytes;
            }
        }
        counters_.held_rows = reader_->held_rows();
        return counters_;
    }

    void close() override { changed_.notify(); }

  private:
    [[nodiscard]] std::string sealed_text() const {
        const std::string sealed = std::to_string(reader_->sealed_rows());
        const std::string rows = " of " + std::to_string(reader_->manifest().rows) + " rows";
        const std::uint64_t held = reader_->held_rows();
        return held == reader_->sealed_rows() ? sealed + rows + " sealed"
                                              : std::to_string(held) + rows + ", " + sealed + " of them sealed";
    }

    [[nodiscard]] std::string waiting_text(std::uint64_t missing) const {
        const std::string row = name_ + ": row " + std::to_string(missing);
        if (reader_->has_writer()) {
            return row + " is not there yet (" + sealed_text() + "); its writer must continue";
        }
        const std::uint64_t rows = reader_->manifest().rows;
        const std::uint64_t held = reader_->held_rows();
        return row + " is missing, and no process writes this store; " + std::to_string(held) + " of " +
               std::to_string(rows) + " rows are there: run distilld generate SPEC --store " + name_ +
               " for the other " + std::to_string(rows - held);
    }

    [[nodiscard]] std::optional<std::uint64_t> first_missing(const TokenBatch& batch) const {
        for (const std::uint64_t row : batch.row_ids) {
            if (!reader_->has(row)) {
                return row;
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] std::optional<std::string> damage_of(std::uint64_t row) const {
        const auto damaged = reader_->damaged();
        const auto found = damaged.find(reader_->manifest().shard_of(row));
        return found == damaged.end() ? std::nullopt : std::optional(found->second);
    }

    asio::awaitable<FetchResult<void>> until_sealed(std::shared_ptr<const TokenBatch> tokens) {
        const Clock::time_point began = Clock::now();
        for (;;) {
            const std::optional<std::uint64_t> missing = first_missing(*tokens);
            if (!missing) {
                co_return FetchResult<void>();
            }
            const Clock::time_point now = Clock::now();
            // A writer that repairs a shard replaces its file shortly before it records the shard.
            if (const auto damage = damage_of(*missing); damage && now - began >= options_.poll) {
                co_return FetchError{FailureKind::rejected, *damage + kMending, std::nullopt};
            }
            const Clock::duration silent = now - std::max(began, news_);
            if (silent >= options_.outage_timeout) {
                const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silent).count();
                co_return FetchError{FailureKind::rejected,
                                     waiting_text(*missing) + "; nothing was sealed for " + std::to_string(seconds) +
                                         " s (/teacher/patience_secs is over)",
                                     std::nullopt};
            }
            if (silent >= options_.quiet) {
                tell(*missing, now);
            }
            if (!looking_ && now - looked_ >= options_.poll) {
                const Result<void> looked = co_await look();
                if (!looked) {
                    co_return FetchError{FailureKind::bad_response, looked.error().message, std::nullopt};
                }
                continue;
            }
            const auto again = now + std::chrono::duration_cast<Clock::duration>(options_.poll);
            co_await changed_.wait(again);
        }
    }

    /// One waiting fetch looks for new shards on behalf of all.
    asio::awaitable<Result<void>> look() {
        struct Mark {
            bool& looking;
            ~Mark() { looking = false; }
        };
        looking_ = true;
        const Mark mark{looking_};
        auto refresh = [reader = reader_] { return reader->refresh(); };
        const Result<bool> more = co_await run_on(disk_, std::move(refresh));
        looked_ = Clock::now();
        if (!more) {
            co_return more.error();
        }
        if (*more) {
            news_ = looked_;
            changed_.notify();
        }
        co_return Result<void>();
    }

    /// Each waiting fetch names another row, so the text always differs. A wait is reported again when more rows are
    /// sealed, or when a writer starts or stops.
    void tell(std::uint64_t missing, Clock::time_point now) {
        const State state{reader_->sealed_rows(), reader_->has_writer()};
        if (!options_.on_waiting || told_ == state || (told_at_ && now - *told_at_ < options_.repeat)) {
            return;
        }
        told_ = state;
        told_at_ = now;
        options_.on_waiting(waiting_text(missing));
    }

    void tell_over() {
        if (std::exchange(told_, std::nullopt)) {
            options_.on_waiting("");
        }
    }

    struct State {
        std::uint64_t sealed = 0;
        bool has_writer = false;
        bool operator==(const State&) const = default;
    };

    asio::any_io_executor disk_;
    std::shared_ptr<StoreReader> reader_;
    StoreTeacherOptions options_;
    std::string name_;
    Condition changed_;
    Clock::time_point news_{};    ///< last answer or sealed shard
    Clock::time_point looked_{};  ///< last look for new shards
    bool looking_ = false;
    std::optional<State> told_;  ///< the store at the last report; empty: no wait is reported
    std::optional<Clock::time_point> told_at_;
    mutable StoreCounters counters_;  ///< cached until more rows are sealed
};

template <class Value>
Error differs(const char* what, const Value& has, const Value& wanted, const char* field) {
    return invalid_input("/teacher/store: the store's " + std::string(what) + " is " + has + ", not " + wanted +
                         " as " + field + " has it");
}

}  // namespace

std::unique_ptr<TeacherSource> make_store_teacher(asio::any_io_executor io, asio::any_io_executor disk,
                                                  std::shared_ptr<StoreReader> reader, StoreTeacherOptions options) {
    return std::make_unique<StoreTeacher>(std::move(io), std::move(disk), std::move(reader), std::move(options));
}

Result<void> check_store(const StoreManifest& manifest, const StoreWish& wish) {
    const auto text = [](std::uint64_t number) { return std::to_string(number); };
    if (manifest.sequence_length != wish.sequence_length) {
        return differs("sequence length", text(manifest.sequence_length), text(wish.sequence_length),
                       "/dataset/sequence_length");
    }
    if (!manifest.tokenizer_hash.empty() && !wish.tokenizer_hash.empty() &&
        manifest.tokenizer_hash != wish.tokenizer_hash) {
        return differs("tokenizer", manifest.tokenizer_hash, wish.tokenizer_hash, "the text of /dataset/train");
    }
    if (manifest.rows != wish.rows) {
        return differs("number of rows", text(manifest.rows), text(wish.rows), "/dataset/train");
    }
    if (manifest.dataset_hash != wish.dataset_hash) {
        return differs("dataset", manifest.dataset_hash, wish.dataset_hash, "/dataset/train");
    }
    if (manifest.temperature != 1) {
        return differs("temperature", std::to_string(manifest.temperature), std::string("1"), "every teacher");
    }
    const bool cut = manifest.format == StoreFormat::topk || manifest.format == StoreFormat::packed;
    if (wish.top_k != 0 && cut && manifest.k != std::min<std::uint64_t>(wish.top_k, manifest.vocabulary)) {
        return differs("number of entries per token", text(manifest.k), text(wish.top_k), "/teacher/top_k");
    }
    for (const std::string& output : wish.outputs) {
        if (std::ranges::find(manifest.tensors, output, &StoredTensor::name) == manifest.tensors.end()) {
            return invalid_input("/teacher/outputs: names \"" + output + "\", but the store holds " +
                                 entries_of(manifest));
        }
    }
    return {};
}

AnswerSize stored_answer_size(const StoreManifest& manifest, std::uint32_t rows, std::uint32_t columns) {
    if (manifest.format == StoreFormat::tensors) {
        AnswerSize size;
        size.held_bytes = rows * max_token_bytes(manifest);
        size.max_wire_bytes = 0;
        return size;
    }
    const bool full = manifest.format == StoreFormat::full;
    const std::uint64_t entries = full ? manifest.vocabulary : std::max(manifest.k, manifest.samples);
    const std::uint64_t value = manifest.values == StoreValues::f16 && (full || manifest.format == StoreFormat::topk)
                                    ? sizeof(std::uint16_t)
                                    : sizeof(float);
    const std::uint64_t entry = value + (full ? 0 : sizeof(std::int32_t));
    AnswerSize size;
    size.held_bytes = std::uint64_t{rows} * columns * (entries * entry + sizeof(float) + 1);
    size.max_wire_bytes = 0;
    return size;
}

}  // namespace distilld
