#include "pipeline/teacher/document_teacher.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "pipeline/async/task_group.hpp"
#include "pipeline/core/row_documents.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/core/vocabulary/mapped_rows.hpp"
#include "pipeline/teacher/request_parts.hpp"
#include "pipeline/teacher/request_slots.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// A document of the student's batch, and how many positions the teacher reads of it.
struct AskedDocument : RowDocument {
    std::uint32_t own_length = 0;  ///< of the student; `length` is the teacher's
};

using Documents = std::vector<AskedDocument>;

Documents documents_of(const TokenBatch& tokens, const ReadDocument& read) {
    Documents all;
    const auto add = [&](RowDocument document) {
        const std::uint32_t own_length = document.length;
        if (read) {
            document.length = static_cast<std::uint32_t>(read(document.id).lengths.front());
        }
        all.push_back({document, own_length});
    };
    std::ranges::for_each(tokens.documents, add);
    for (std::uint32_t row = 0; tokens.documents.empty() && row < tokens.rows; ++row) {
        const std::uint64_t id = tokens.row_ids.empty() ? row : tokens.row_ids[row];
        add({row, 0, static_cast<std::uint32_t>(tokens.lengths[row]), id});
    }
    return all;
}

/// Groups documents, longest first, with as many per group as the padding limit allows.
std::vector<Documents> groups_of(const TokenBatch& tokens, const ReadDocument& read) {
    Documents documents = documents_of(tokens, read);
    if (tokens.documents.empty()) {
        return {std::move(documents)};
    }
    std::ranges::sort(documents, longest_first);
    std::vector<Documents> groups;
    double filled = 0;
    for (const AskedDocument& document : documents) {
        const double with_it = groups.empty() ? 0 : filled + document.length;
        const double room =
            groups.empty() ? 0 : static_cast<double>(groups.back().size() + 1) * groups.back().front().length;
        if (groups.empty() || with_it < (1 - kMaxAskedPadding) * room) {
            groups.emplace_back();
            filled = 0;
        }
        groups.back().push_back(document);
        filled += document.length;
    }
    return groups;
}

std::uint32_t columns_of(const Documents& group, std::uint32_t sequence_length) {
    std::uint32_t length = 0;
    for (const AskedDocument& document : group) {
        length = std::max(length, document.length);
    }
    const std::uint32_t rounded = (length + kAskedColumns - 1) / kAskedColumns * kAskedColumns;
    return std::max(length, std::min(rounded, sequence_length));
}

std::shared_ptr<const TokenBatch> batch_of(const TokenBatch& tokens, const Documents& group,
                                           std::uint32_t sequence_length, const ReadDocument& read) {
    auto batch = std::make_shared<TokenBatch>();
    batch->number = tokens.number;
    batch->rows = static_cast<std::uint32_t>(group.size());
    batch->columns = columns_of(group, sequence_length);
    batch->input_ids.resize(group.size() * batch->columns, 0);
    batch->labels.resize(group.size() * batch->columns, kIgnoredLabel);
    for (std::size_t row = 0; row < group.size(); ++row) {
        const AskedDocument& document = group[row];
        const std::optional<TokenBatch> other = read ? std::optional(read(document.id)) : std::nullopt;
        const TokenBatch& source = other ? *other : tokens;
        const auto from =
            other ? std::ptrdiff_t{0}
                  : static_cast<std::ptrdiff_t>(std::size_t{document.row} * tokens.columns + document.begin);
        const auto to = static_cast<std::ptrdiff_t>(row * batch->columns);
        std::copy_n(source.input_ids.begin() + from, document.length, batch->input_ids.begin() + to);
        std::copy_n(source.labels.begin() + from, document.length, batch->labels.begin() + to);
        batch->target_tokens += document.length - static_cast<std::uint64_t>(std::count(
                                                      source.labels.begin() + from,
                                                      source.labels.begin() + from + document.length, kIgnoredLabel));
        batch->lengths.push_back(static_cast<std::int32_t>(document.length));
        batch->row_ids.push_back(document.id);
    }
    if (tokens.row_ids.empty()) {
        batch->row_ids.clear();
    }
    return batch;
}

std::vector<std::shared_ptr<const TokenBatch>> batches_of(const TokenBatch& tokens,
                                                          const std::vector<Documents>& groups,
                                                          std::uint32_t sequence_length, const ReadDocument& read) {
    std::vector<std::shared_ptr<const TokenBatch>> batches;
    for (const Documents& group : groups) {
        batches.push_back(batch_of(tokens, group, sequence_length, read));
    }
    return batches;
}

ArrayView positions_of(const ArrayView& array, const TeacherTargets& of, std::size_t first, std::size_t count) {
    const std::size_t bytes = array.bytes.size() / (std::size_t{of.rows} * of.columns);
    return {array.type, array.bytes.subspan(first * bytes, count * bytes)};
}

/// Sums of what MappedRows has taken, by any thread.
class AlignmentSums {
  public:
    explicit AlignmentSums(OnAlignment on_first) : on_first_(std::move(on_first)) {}

    void add(const AlignmentCounters& of_batch) {
        const std::lock_guard lock(mutex_);
        sums_.positions += of_batch.positions;
        sums_.aligned += of_batch.aligned;
        sums_.mapped_mass += of_batch.mapped_mass;
        if (const OnAlignment tell = std::exchange(on_first_, {})) {
            tell(means());
        }
    }
    [[nodiscard]] AlignmentCounters read() const {
        const std::lock_guard lock(mutex_);
        return means();
    }

  private:
    [[nodiscard]] AlignmentCounters means() const {
        AlignmentCounters counters = sums_;
        counters.mapped_mass /= static_cast<double>(std::max<std::uint64_t>(1, sums_.aligned));
        return counters;
    }

    mutable std::mutex mutex_;
    OnAlignment on_first_;
    AlignmentCounters sums_;  ///< mapped_mass: the sum
};

/// What answers in other tokens are aligned with; decoders outlive their teacher.
struct OtherTokens {
    std::shared_ptr<const TokenAlignment> alignment;  ///< null: the tokens are the same
    ReadDocument read;
    std::shared_ptr<AlignmentSums> sums;
};

/// The first of the student's positions that counts: those before have read less than the teacher before its first
/// label.
std::size_t first_counted(const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& partners) {
    const auto first = std::ranges::find_if(labels, [](std::int32_t label) { return label != kIgnoredLabel; });
    const auto begin = static_cast<std::int32_t>(first - labels.begin());
    const auto met = std::ranges::find_if(partners, [begin](std::int32_t partner) { return partner >= begin; });
    return begin == 0 ? 0 : static_cast<std::size_t>(met - partners.begin());
}

/// The targets of one row of another tokenizer, at the positions of the document that have a partner. Adds to
/// `counted`.
AnsweredPart mapped_part_of(const TeacherTargets& targets, std::size_t row, const AskedDocument& document,
                            const TokenBatch& tokens, const OtherTokens& other, AlignmentCounters& counted) {
    const TokenBatch read = other.read(document.id);
    const std::size_t first = std::size_t{document.row} * tokens.columns + document.begin;
    const auto labels = std::span(tokens.labels).subspan(first, document.own_length);
    const std::vector<std::int32_t> partners =
        other.alignment->partners(std::span(tokens.input_ids).subspan(first, document.own_length),
                                  std::span(read.input_ids).first(document.length));
    MappedRows rows(*other.alignment, targets.width, document.own_length);
    counted.positions += labels.size() - first_counted(read.labels, partners);
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const auto j = static_cast<std::size_t>(std::max(partners[i], 0));
        const std::size_t at = row * targets.columns + j;
        if (labels[i] != kIgnoredLabel && partners[i] != kNoPartner && read.labels[j] != kIgnoredLabel &&
            row_is_given(targets, at)) {
            ++counted.aligned;
            counted.mapped_mass += rows.put(i, targets, at);
        }
    }
    return {{document.row, 1, document.begin, document.own_length}, rows.finish()};
}

/// The targets of one row without its padding, placed at the document's position: as many as both have, at the ends of
/// both. Positions whose labels differ have no label (align_with_teacher()).
AnsweredPart part_of(const TeacherTargets& targets, std::size_t row, const AskedDocument& document) {
    const std::uint32_t count = std::min(document.length, document.own_length);
    AnsweredPart one{{document.row, 1, document.begin + document.own_length - count, count}, targets};
    one.targets.rows = 1;
    one.targets.columns = count;
    const std::size_t first = row * targets.columns + document.length - count;
    for (ArrayView* array : {&one.targets.ids, &one.targets.values, &one.targets.tail, &one.targets.loss_mask}) {
        *array = positions_of(*array, targets, first, count);
    }
    return one;
}

class DocumentDecoder final : public EncodedAnswer::Decoder {
  public:
    DocumentDecoder(std::string name, std::shared_ptr<const TokenBatch> tokens, std::uint32_t sequence_length,
                    std::vector<Documents> groups, std::vector<EncodedAnswer> answers, OtherTokens other)
        : name_(std::move(name)),
          tokens_(std::move(tokens)),
          sequence_length_(sequence_length),
          groups_(std::move(groups)),
          answers_(std::move(answers)),
          other_(std::move(other)) {}

    FetchResult<TeacherTargets> decode() override {
        std::vector<AnsweredPart> parts;
        AlignmentCounters counted;
        std::uint64_t wire_bytes = 0;
        for (std::size_t i = 0; i < groups_.size(); ++i) {
            const FetchResult<TeacherTargets> targets = answers_[i].decode();
            if (!targets) {
                return targets.error();
            }
            const std::uint32_t columns = columns_of(groups_[i], sequence_length_);
            if (targets->rows != groups_[i].size() || targets->columns != columns) {
                return bad(shape_text(*targets, groups_[i].size(), columns));
            }
            if (other_.alignment && targets->kind != TeacherTargets::Kind::topk) {
                return bad("the answer has no top-k rows, which /teacher/tokenizer takes");
            }
            wire_bytes += targets->wire_bytes;
            for (std::size_t row = 0; row < groups_[i].size(); ++row) {
                const AskedDocument& document = groups_[i][row];
                parts.push_back(other_.alignment ? mapped_part_of(*targets, row, document, *tokens_, other_, counted)
                                                 : part_of(*targets, row, document));
            }
        }
        Result<TeacherTargets> joined = join_targets(*tokens_, std::move(parts));
        if (!joined) {
            return bad(joined.error().message);
        }
        joined->wire_bytes = wire_bytes;
        if (other_.alignment) {
            other_.sums->add(counted);
        }
        return std::move(*joined);
    }

  private:
    static std::string shape_text(const TeacherTargets& targets, std::size_t rows, std::uint32_t columns) {
        return "the answer has rows for [" + std::to_string(targets.rows) + ", " + std::to_string(targets.columns) +
               "] positions, asked were [" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
    }

    [[nodiscard]] FetchError bad(const std::string& what) const {
        return {FailureKind::bad_response, name_ + ": " + what, std::nullopt};
    }

    std::string name_;
    std::shared_ptr<const TokenBatch> tokens_;
    std::uint32_t sequence_length_;
    std::vector<Documents> groups_;
    std::vector<EncodedAnswer> answers_;
    OtherTokens other_;
};

class DocumentTeacher final : public TeacherSource {
  public:
    DocumentTeacher(std::unique_ptr<TeacherSource> teacher, std::uint32_t sequence_length, ReadDocument read,
                    std::shared_ptr<const TokenAlignment> alignment, OnAlignment on_first)
        : teacher_(std::move(teacher)),
          sequence_length_(sequence_length),
          read_(std::move(read)),
          other_{std::move(alignment), read_, std::make_shared<AlignmentSums>(std::move(on_first))} {}

    std::size_t endpoint_count() const override { return teacher_->endpoint_count(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return teacher_->endpoint_name(endpoint); }
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        return teacher_->probe(vocabulary_size);
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        // Documents arrive in padded batches and are copied out of them.
        const AnswerSize placed = teacher_->answer_size(rows, columns);
        const auto padded_rows = static_cast<std::uint32_t>(std::ceil(rows / (1 - kMaxAskedPadding)));
        AnswerSize size = teacher_->answer_size(padded_rows, asked_columns(columns));
        const std::uint64_t masks = std::uint64_t{rows} * columns;
        size.decode_bytes += size.held_bytes;
        size.held_bytes = placed.held_bytes + masks;
        return size;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        std::vector<Documents> groups = groups_of(*tokens, read_);
        std::vector<std::shared_ptr<const TokenBatch>> batches = batches_of(*tokens, groups, sequence_length_, read_);
        const bool as_it_is = !read_ && tokens->documents.empty() && batches.front()->columns == tokens->columns;
        if (tokens->rows == 0 || as_it_is) {
            co_return co_await teacher_->fetch(endpoint, std::move(tokens), deadline);
        }
        if (!slots_) {
            slots_.emplace(co_await asio::this_coro::executor, limits_);
        }
        Asked asked{endpoint, std::chrono::steady_clock::now() + deadline, std::vector<EncodedAnswer>(batches.size())};
        TaskGroup asking(co_await asio::this_coro::executor);
        for (std::size_t i = 0; i < batches.size(); ++i) {
            if (!asking.spawn(ask(asked, asking, i, std::move(batches[i])))) {
                break;  // an earlier request has failed
            }
        }
        co_await asking.join();
        if (asked.error) {
            co_return *asked.error;
        }
        if (asked.answered < asked.answers.size()) {
            co_return FetchError{FailureKind::cancelled, endpoint_name(endpoint) + ": cancelled", std::nullopt};
        }
        std::uint64_t wire_bytes = 0;
        for (const EncodedAnswer& answer : asked.answers) {
            wire_bytes += answer.wire_bytes();
        }
        auto decoder = std::make_unique<DocumentDecoder>(endpoint_name(endpoint), std::move(tokens), sequence_length_,
                                                         std::move(groups), std::move(asked.answers), other_);
        co_return EncodedAnswer(std::move(decoder), wire_bytes);
    }

    void set_concurrency_limits(const ConcurrencyLimits& limits) override {
        limits_ = limits;
        if (slots_) {
            slots_->set_limits(limits);
        }
    }

    std::uint64_t bytes_received() const override { return teacher_->bytes_received(); }
    WireTraffic traffic(std::size_t endpoint) const override { return teacher_->traffic(endpoint); }
    bool is_slow_by_chance() const override { return teacher_->is_slow_by_chance(); }
    void expect_batches(std::uint32_t rows, std::uint32_t columns) override {
        teacher_->expect_batches(rows, asked_columns(columns));
    }
    HeadFetchCounters head_fetch() const override { return teacher_->head_fetch(); }
    std::optional<StoreCounters> store() const override { return teacher_->store(); }
    std::optional<AlignmentCounters> alignment() const override {
        return other_.alignment ? std::optional(other_.sums->read()) : std::nullopt;
    }
    void close() override { teacher_->close(); }
    asio::awaitable<void> settle() override { return teacher_->settle(); }

  private:
    /// One fetch.
    struct Asked {
        std::size_t endpoint;
        std::chrono::steady_clock::time_point end;
        std::vector<EncodedAnswer> answers;  ///< to each request
        std::size_t answered = 0;
        std::optional<FetchError> error{};  ///< the first
    };

    /// Sends one request when a slot is free. The first failure cancels the others.
    asio::awaitable<void> ask(Asked& asked, TaskGroup& all, std::size_t request,
                              std::shared_ptr<const TokenBatch> batch) {
        const RequestSlots::Slot slot = co_await slots_->take(asked.endpoint);
        const auto left = asked.end - std::chrono::steady_clock::now();
        FetchResult<EncodedAnswer> answer =
            FetchError{FailureKind::timeout, endpoint_name(asked.endpoint) + ": no answer for all documents in time",
                       std::nullopt};
        if (left > std::chrono::nanoseconds(0)) {
            answer = co_await teacher_->fetch(asked.endpoint, std::move(batch), left);
        }
        if (answer) {
            asked.answers[request] = std::move(*answer);
            ++asked.answered;
        } else if (!asked.error) {
            asked.error = answer.error();
            all.cancel();
        }
    }

    [[nodiscard]] std::uint32_t asked_columns(std::uint32_t columns) const noexcept {
        return read_ ? sequence_length_ : columns;
    }

    std::unique_ptr<TeacherSource> teacher_;
    std::uint32_t sequence_length_;
    ReadDocument read_;
    OtherTokens other_;
    ConcurrencyLimits limits_;  // one at a time until set
    std::optional<RequestSlots> slots_;
};

}  // namespace

std::vector<std::shared_ptr<const TokenBatch>> batches_of_documents(const TokenBatch& tokens,
                                                                    std::uint32_t sequence_length,
                                                                    const ReadDocument& read) {
    return batches_of(tokens, groups_of(tokens, read), sequence_length, read);
}

std::unique_ptr<TeacherSource> make_document_teacher(std::unique_ptr<TeacherSource> teacher,
                                                     std::uint32_t sequence_length, ReadDocument read,
                                                     std::shared_ptr<const TokenAlignment> alignment,
                                                     OnAlignment on_first) {
    return std::make_unique<DocumentTeacher>(std::move(teacher), sequence_length, std::move(read), std::move(alignment),
                                             std::move(on_first));
}

}  // namespace distilld
