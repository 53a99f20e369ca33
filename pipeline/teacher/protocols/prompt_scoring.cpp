#include "pipeline/teacher/protocols/prompt_scoring.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "pipeline/core/vocabulary_fit.hpp"

namespace distilld {

namespace {

[[noreturn]] void reject(std::string message) {
    throw ErrorException(teacher_error(std::move(message)));
}

/// Bytes around the rows of a sequence.
constexpr std::uint64_t kEnvelopeBytes = 64U << 10U;

/// The first id of the part's prompts outside of the vocabulary (0 = size unknown). Such an id crashes some servers.
std::optional<std::int32_t> foreign_id(const TokenBatch& tokens, const RequestPart& part, std::uint32_t vocabulary) {
    for (std::uint32_t row = 0; row < part.rows; ++row) {
        for (const std::int32_t id : prompt_of(tokens, part.first_row + row)) {
            if (id < 0 || (vocabulary != 0 && static_cast<std::uint32_t>(id) >= vocabulary)) {
                return id;
            }
        }
    }
    return std::nullopt;
}

}  // namespace

std::size_t prompt_length(const TokenBatch& tokens, std::uint32_t row) {
    const auto inputs = static_cast<std::size_t>(std::max<std::int32_t>(tokens.lengths[row], 0));
    if (inputs == 0) {
        return 1;
    }
    const std::int32_t last_label = tokens.labels[std::size_t{row} * tokens.columns + inputs - 1];
    return inputs + (last_label != kIgnoredLabel ? 1 : 0);
}

std::vector<std::int32_t> prompt_of(const TokenBatch& tokens, std::uint32_t row) {
    const auto inputs = static_cast<std::size_t>(std::max<std::int32_t>(tokens.lengths[row], 0));
    const std::size_t first = std::size_t{row} * tokens.columns;
    const auto from = tokens.input_ids.begin() + static_cast<std::ptrdiff_t>(first);
    std::vector<std::int32_t> prompt(from, from + static_cast<std::ptrdiff_t>(inputs));
    if (prompt.size() < prompt_length(tokens, row)) {
        prompt.push_back(inputs == 0 ? 0 : tokens.labels[first + inputs - 1]);
    }
    return prompt;
}

void append_prompts(std::string& json, const TokenBatch& tokens, const RequestPart& part) {
    std::array<char, 16> digits;
    for (std::uint32_t row = 0; row < part.rows; ++row) {
        json += row == 0 ? "[" : ",[";
        const std::vector<std::int32_t> prompt = prompt_of(tokens, part.first_row + row);
        for (std::size_t i = 0; i < prompt.size(); ++i) {
            if (i > 0) {
                json.push_back(',');
            }
            const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), prompt[i]);
            json.append(digits.data(), end.ptr);
        }
        json.push_back(']');
    }
}

Result<std::uint32_t> entries_wanted(const TargetsWanted& wanted) {
    if (wanted.top_k == 0 && wanted.vocabulary == 0) {
        return teacher_error("/teacher/top_k is 0: full logits are requested once the vocabulary is known");
    }
    if (wanted.top_k == 0) {
        return wanted.vocabulary;
    }
    return wanted.vocabulary == 0 ? wanted.top_k : std::min(wanted.top_k, wanted.vocabulary);
}

std::uint64_t prompt_row_bytes(std::uint64_t positions, const TargetsWanted& wanted) {
    const std::uint64_t each = wanted.top_k == 0 ? std::uint64_t{wanted.vocabulary} * sizeof(float)
                                                 : std::uint64_t{wanted.top_k} * (sizeof(std::int32_t) + sizeof(float));
    return positions * (each + sizeof(std::uint8_t));
}

PromptRows::PromptRows(const TokenBatch& tokens, const RequestPart& part, const TargetsWanted& wanted,
                       std::uint32_t entries, BufferPool& buffers)
    : part_(part), full_(wanted.top_k == 0), width_(entries), storage_(std::make_shared<Storage>()) {
    for (std::uint32_t row = 0; row < part.rows; ++row) {
        prompts_.push_back(prompt_of(tokens, part.first_row + row));
    }
    const std::size_t positions = std::size_t{part.rows} * part.columns;
    storage_->values = buffers.acquire(positions * width_ * sizeof(float));
    storage_->values->resize(positions * width_ * sizeof(float));
    storage_->mask.resize(positions);
    if (!full_) {
        storage_->ids = buffers.acquire(positions * width_ * sizeof(std::int32_t));
        storage_->ids->resize(positions * width_ * sizeof(std::int32_t));
    }
}

void PromptRows::begin(std::uint32_t row, std::size_t token) {
    row_ = row;
    token_ = token;
    entries_.clear();
}

bool PromptRows::names_own_token() const noexcept {
    const auto own = static_cast<std::uint32_t>(prompt_token());
    return std::any_of(entries_.begin(), entries_.end(), [own](const auto& entry) { return entry.second == own; });
}

std::string PromptRows::where() const {
    return "sequence " + std::to_string(row_) + ", token " + std::to_string(token_);
}

void PromptRows::put(std::uint32_t row, std::size_t token, std::span<const std::int32_t> ids,
                     std::span<const float> log_probabilities) {
    begin(row, token);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        add(static_cast<std::uint32_t>(ids[i]), log_probabilities[i]);
    }
    end();
}

void PromptRows::end() {
    if (entries_.size() < width_) {
        reject(where() + " has " + std::to_string(entries_.size()) + " log-probabilities, " + std::to_string(width_) +
               " were asked for");
    }
    const std::size_t position = std::size_t{row_} * part_.columns + token_ - 1;
    if (storage_->mask[position] != 0) {
        reject(where() + " was answered twice");
    }
    auto* values = row_of<float>(*storage_->values, position);
    if (full_) {
        keep_all(values);
    } else {
        keep_top(row_of<std::int32_t>(*storage_->ids, position), values);
    }
    storage_->mask[position] = 1;
    ++given_;
}

void PromptRows::keep_all(float* values) {
    std::fill_n(values, width_, std::numeric_limits<float>::quiet_NaN());
    std::uint32_t filled = 0;
    for (const auto& [log_probability, id] : entries_) {
        if (id >= width_ + max_padding(width_)) {
            reject(where() + " names token " + std::to_string(id) + ", the student's vocabulary has " +
                   std::to_string(width_) + " ids");
        }
        if (id >= width_) {
            continue;  // the others still are logits, minus a constant per row
        }
        filled += std::isnan(values[id]) ? 1U : 0U;
        values[id] = log_probability;
    }
    if (filled != width_) {
        reject(where() + " does not name each of the " + std::to_string(width_) +
               " tokens of the vocabulary: set /teacher/top_k where the teacher's is larger");
    }
}

void PromptRows::keep_top(std::int32_t* ids, float* values) {
    const auto more_probable = [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    // Entries come sorted or nearly so: some servers put the prompt's own token first, whatever its rank.
    const std::size_t max_moves = 4 * entries_.size();
    std::size_t moves = 0;
    for (std::size_t i = 1; i < entries_.size() && moves <= max_moves; ++i) {
        const auto entry = entries_[i];
        std::size_t at = i;
        for (; at > 0 && more_probable(entry, entries_[at - 1]); --at) {
            entries_[at] = entries_[at - 1];
        }
        entries_[at] = entry;
        moves += i - at;
    }
    if (moves > max_moves) {
        std::sort(entries_.begin(), entries_.end(), more_probable);
    }
    for (std::uint32_t i = 0; i < width_; ++i) {
        values[i] = entries_[i].first;
        ids[i] = static_cast<std::int32_t>(entries_[i].second);
    }
}

/// Zeroes the missing rows, so that they are the same in every run.
void PromptRows::clear_missing() {
    for (std::size_t position = 0; position < storage_->mask.size(); ++position) {
        if (storage_->mask[position] == 0) {
            std::fill_n(row_of<float>(*storage_->values, position), width_, 0.0F);
            if (!full_) {
                std::fill_n(row_of<std::int32_t>(*storage_->ids, position), width_, 0);
            }
        }
    }
}

TeacherTargets PromptRows::finish() {
    TeacherTargets targets;
    targets.kind = full_ ? TeacherTargets::Kind::logits : TeacherTargets::Kind::topk;
    targets.rows = part_.rows;
    targets.columns = part_.columns;
    targets.width = width_;
    targets.values = {ElementType::f32, storage_->values->bytes()};
    targets.held_bytes = storage_->values->size() + storage_->mask.size();
    if (!full_) {
        targets.ids = {ElementType::i32, storage_->ids->bytes()};
        targets.held_bytes += storage_->ids->size();
    }
    if (given_ != storage_->mask.size()) {
        clear_missing();
        targets.loss_mask = {ElementType::u8, std::as_bytes(std::span(storage_->mask))};
    }
    targets.owner = storage_;
    return targets;
}

Result<std::vector<RequestPart>> PromptScoringCodec::plan_requests(const TokenBatch& tokens) const {
    for (std::uint32_t row = 0; row < tokens.rows && options_.max_tokens != 0; ++row) {
        const std::size_t length = prompt_length(tokens, row);
        if (length + options_.generated > options_.max_tokens) {
            return invalid_input("/dataset/sequence_length: a prompt of " + std::to_string(length) + " tokens" +
                                 (options_.generated > 0 ? " and one generated token are" : " is") + " above the " +
                                 std::to_string(options_.max_tokens) + " of the teacher (max_model_len)");
        }
    }
    return std::vector<RequestPart>{whole_batch(tokens)};
}

Result<HttpRequest> PromptScoringCodec::make_request(const TokenBatch& tokens, const RequestPart& part) const {
    const auto entries = entries_wanted(options_.wanted);
    if (!entries) {
        return entries.error();
    }
    if (const auto id = foreign_id(tokens, part, options_.wanted.vocabulary)) {
        return invalid_input("token id " + std::to_string(*id) + " is outside the vocabulary of " +
                             std::to_string(options_.wanted.vocabulary) + ": it is not sent");
    }
    HttpRequest request;
    request.target = options_.target;
    request.content_type = kJsonContentType;
    request.body = std::make_shared<const std::string>(request_body(tokens, part, *entries));
    return request;
}

Result<TeacherTargets> PromptScoringCodec::decode(const HttpResponse& response, const TokenBatch& tokens,
                                                  const RequestPart& part) const {
    const auto entries = entries_wanted(options_.wanted);
    if (!entries) {
        return entries.error();
    }
    return read_json_answer(*response.body, *parsers_, [&](simdjson::ondemand::document& document) {
        PromptRows rows(tokens, part, options_.wanted, *entries, *options_.buffers);
        read_rows(document, part, rows);
        return rows.finish();
    });
}

AnswerSize PromptScoringCodec::answer_size(std::uint32_t rows, std::uint32_t columns) const {
    const std::uint64_t positions = std::uint64_t{rows} * columns;
    AnswerSize size;
    if (const auto entries = entries_wanted(options_.wanted)) {
        // The prompt's own token comes in addition to the k.
        const std::uint64_t count = positions * (std::uint64_t{*entries} + 1);
        size.max_accepted_bytes = count * options_.max_entry_bytes + rows * kEnvelopeBytes;
        size.max_wire_bytes = json_wire_bytes(count, options_.entry_bytes, size.max_accepted_bytes);
    }
    size.held_bytes = prompt_row_bytes(positions, options_.wanted);
    if (const auto entries = entries_wanted(options_.wanted)) {
        // "335":{"logprob":-1.5,"rank":1,"decoded_token":"x"},
        constexpr std::uint64_t kMarksOfEntry = 16;
        size.decode_bytes =
            json_decode_bytes(size.held_bytes, kMarksOfEntry * positions * (std::uint64_t{*entries} + 1));
    }
    return size;
}

std::string PromptScoringCodec::rows_wanted() const {
    const std::uint32_t k = options_.wanted.top_k;
    return (k == 0 ? "all" : "top " + std::to_string(k)) + " log-probabilities of the prompt";
}

double entry_bytes_of(const TeacherTargets& answer) {
    const double entries = double{1} * answer.rows * answer.columns * (answer.width + 1);
    return entries > 0 ? static_cast<double>(answer.wire_bytes) / entries : 0;
}

Result<std::string> page_beside(const EndpointUrl& url, std::string_view ending, std::string_view page) {
    if (!url.path.ends_with(ending)) {
        return invalid_input("teacher endpoint '" + url.name + "': the path of such an endpoint ends in " +
                             std::string(ending));
    }
    return url.path.substr(0, url.path.size() - ending.size()).append(page) + url.query;
}

}  // namespace distilld
