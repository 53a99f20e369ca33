#include "pipeline/teacher/caching_teacher.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "pipeline/async/run_on.hpp"
#include "pipeline/teacher/store_teacher.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// The store behind the decoders, which may outlive the teacher. Any thread.
class Cache {
  public:
    Cache(asio::any_io_executor io, CachingTeacherOptions options)
        : io_(std::move(io)),
          options_(std::move(options)),
          of_reader_(options_.writer ? nullptr : std::make_unique<const RowCodec>(options_.reader->manifest())) {}

    [[nodiscard]] const StoreManifest& manifest() const { return codec().manifest(); }

    /// Whether all rows can be read.
    [[nodiscard]] bool has(const TokenBatch& batch) {
        if (!options_.reads) {
            return false;
        }
        const std::lock_guard lock(mutex_);
        return std::all_of(batch.row_ids.begin(), batch.row_ids.end(), [this](std::uint64_t row) {
            const bool held = options_.writer ? !options_.writer->needs(row) : options_.reader->has(row);
            return held && !damaged_.contains(row);
        });
    }

    FetchResult<TeacherTargets> read(const TokenBatch& batch) {
        Result<TeacherTargets> targets = options_.writer ? options_.writer->read(batch) : options_.reader->read(batch);
        if (targets) {
            return std::move(*targets);
        }
        {
            const std::lock_guard lock(mutex_);
            damaged_.insert(batch.row_ids.begin(), batch.row_ids.end());
        }
        const std::string text = targets.error().message + "; asking the teacher instead";
        if (is_new(text.substr(0, text.find(": ")))) {
            warn(text);
        }
        return FetchError{FailureKind::bad_response, text, std::nullopt};
    }

    /// Adds the answers to the store, if it can be written, and returns them as the store decodes them.
    FetchResult<TeacherTargets> keep(const TokenBatch& batch, const TeacherTargets& answer) {
        const Result<std::vector<StoredRow>> rows = codec().encode(batch, answer);
        if (!rows && options_.passes_what_it_cannot_keep) {
            return answer;
        }
        if (!rows) {
            return FetchError{FailureKind::bad_response, rows.error().message, std::nullopt};
        }
        if (options_.writer) {
            note(options_.writer->add(*rows));
        }
        Result<TeacherTargets> stored = codec().decode(batch, *rows, buffers_);
        if (!stored) {
            return FetchError{FailureKind::bad_response, stored.error().message, std::nullopt};
        }
        stored->wire_bytes = answer.wire_bytes;
        return std::move(*stored);
    }

    [[nodiscard]] StoreCounters counters() const {
        StoreCounters counters;
        counters.rows = manifest().rows;
        if (!options_.writer) {
            counters.held_rows = options_.reader->held_rows();
            counters.sealed_rows = options_.reader->sealed_rows();
            return counters;
        }
        const StoreProgress progress = options_.writer->progress();
        counters.held_rows = progress.held_rows;
        counters.sealed_rows = progress.sealed_rows;
        counters.sealed_bytes = progress.sealed_bytes;
        return counters;
    }

    /// Makes the added rows durable.
    void settle() {
        if (options_.writer) {
            note(options_.writer->sync());
        }
    }

  private:
    [[nodiscard]] const RowCodec& codec() const { return options_.writer ? options_.writer->codec() : *of_reader_; }

    /// Warns once per outage of the disk.
    void note(const Result<void>& written) {
        bool news = false;
        {
            const std::lock_guard lock(mutex_);
            news = std::exchange(failing_, !written) != failing_;
        }
        if (news && !written) {
            warn(written.error().message + "; training continues, and rows that the store lacks are requested again");
        } else if (news) {
            warn("/teacher/store: the store can be written again");
        }
    }

    /// Whether this is the first damage of the file.
    [[nodiscard]] bool is_new(const std::string& file) {
        const std::lock_guard lock(mutex_);
        return damaged_files_.insert(file).second;
    }

    void warn(std::string text) {
        if (options_.on_warning) {
            asio::post(io_, [tell = options_.on_warning, said = std::move(text)] { tell(said); });
        }
    }

    asio::any_io_executor io_;
    CachingTeacherOptions options_;
    std::unique_ptr<const RowCodec> of_reader_;
    TargetBuffers buffers_;
    std::mutex mutex_;
    std::set<std::uint64_t> damaged_;      // rows
    std::set<std::string> damaged_files_;  // files already warned about
    bool failing_ = false;
};

class ReadDecoder final : public EncodedAnswer::Decoder {
  public:
    ReadDecoder(std::shared_ptr<Cache> cache, std::shared_ptr<const TokenBatch> tokens)
        : cache_(std::move(cache)), tokens_(std::move(tokens)) {}
    FetchResult<TeacherTargets> decode() override { return cache_->read(*tokens_); }

  private:
    std::shared_ptr<Cache> cache_;
    std::shared_ptr<const TokenBatch> tokens_;
};

class KeepDecoder final : public EncodedAnswer::Decoder {
  public:
    KeepDecoder(std::shared_ptr<Cache> cache, std::shared_ptr<const TokenBatch> tokens, EncodedAnswer answer)
        : cache_(std::move(cache)), tokens_(std::move(tokens)), answer_(std::move(answer)) {}
    FetchResult<TeacherTargets> decode() override {
        const FetchResult<TeacherTargets> answer = answer_.decode();
        return answer ? cache_->keep(*tokens_, *answer) : answer;
    }

  private:
    std::shared_ptr<Cache> cache_;
    std::shared_ptr<const TokenBatch> tokens_;
    EncodedAnswer answer_;
};

class CachingTeacher final : public TeacherSource {
  public:
    CachingTeacher(asio::any_io_executor io, std::unique_ptr<TeacherSource> teacher, CachingTeacherOptions options)
        : disk_(options.writer ? options.disk : asio::any_io_executor()),
          teacher_(std::move(teacher)),
          cache_(std::make_shared<Cache>(std::move(io), std::move(options))) {
        const StoreCounters begun = cache_->counters();
        partly_ = begun.held_rows > 0 && begun.held_rows < begun.rows;
    }

    std::size_t endpoint_count() const override { return teacher_->endpoint_count(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return teacher_->endpoint_name(endpoint); }
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        return teacher_->probe(vocabulary_size);
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        AnswerSize size = teacher_->answer_size(rows, columns);
        const AnswerSize stored = stored_answer_size(cache_->manifest(), rows, columns);
        size.held_bytes = std::max(size.held_bytes, stored.held_bytes);
        return size;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        if (cache_->has(*tokens)) {
            co_return EncodedAnswer(std::make_unique<ReadDecoder>(cache_, std::move(tokens)), 0);
        }
        FetchResult<EncodedAnswer> answer = co_await teacher_->fetch(endpoint, tokens, deadline);
        if (!answer) {
            co_return answer.error();
        }
        const std::uint64_t wire_bytes = answer->wire_bytes();
        auto decoder = std::make_unique<KeepDecoder>(cache_, std::move(tokens), std::move(*answer));
        co_return EncodedAnswer(std::move(decoder), wire_bytes);
    }

    std::uint64_t bytes_received() const override { return teacher_->bytes_received(); }
    WireTraffic traffic(std::size_t endpoint) const override { return teacher_->traffic(endpoint); }
    /// Next to rows from the store, every request would look late.
    bool is_slow_by_chance() const override { return !partly_ && teacher_->is_slow_by_chance(); }
    std::optional<StoreCounters> store() const override { return cache_->counters(); }
    void close() override { teacher_->close(); }
    asio::awaitable<void> settle() override {
        if (!disk_) {
            co_return;
        }
        auto work = [cache = cache_] { cache->settle(); };
        co_await run_on(disk_, std::move(work));
    }

  private:
    asio::any_io_executor disk_;  // empty: nothing is written
    std::unique_ptr<TeacherSource> teacher_;
    std::shared_ptr<Cache> cache_;  // shared with decoders, which may outlive the fetch
    bool partly_ = false;           // the store had some, but not all, rows when the run began
};

}  // namespace

std::unique_ptr<TeacherSource> make_caching_teacher(asio::any_io_executor io, std::unique_ptr<TeacherSource> teacher,
                                                    CachingTeacherOptions options) {
    return std::make_unique<CachingTeacher>(std::move(io), std::move(teacher), std::move(options));
}

}  // namespace distilld
