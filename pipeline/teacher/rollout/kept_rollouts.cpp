#include "pipeline/teacher/rollout/kept_rollouts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/files/read_at.hpp"
#include "base/json_fields.hpp"
#include "base/json_text.hpp"

namespace distilld {

namespace fs = std::filesystem;

BOOST_DESCRIBE_STRUCT(Rollout, (), (ids, log_probabilities))
BOOST_DESCRIBE_STRUCT(KeptAnswers, (), (micro_batch, version, rows, answers))

namespace {

constexpr const char* kRun = "rollouts_of_run";
constexpr std::string_view kBegin = R"({"micro_batch":)";
constexpr std::size_t kMaxDepth = 8;
constexpr std::uint64_t kMaxLine = std::uint64_t{1} << 30U;
constexpr std::size_t kPiece = std::size_t{1} << 20U;

/// The micro-batch of a line that append() wrote.
std::optional<std::uint64_t> number_of(std::string_view line) {
    std::uint64_t number = 0;
    if (!line.starts_with(kBegin)) {
        return std::nullopt;
    }
    line.remove_prefix(kBegin.size());
    const auto [end, failed] = std::from_chars(line.data(), line.data() + line.size(), number);
    return failed == std::errc() && end != line.data() + line.size() && *end == ',' ? std::optional(number)
                                                                                    : std::nullopt;
}

/// Empty: it is not the first line of such a file.
std::string run_in(const std::string& line) {
    const auto value = parse_json_text(std::string_view(line).substr(0, line.size() - 1), kMaxDepth);
    const auto* run = value && value->is_object() ? value->get_object().if_contains(kRun) : nullptr;
    return run != nullptr && run->is_string() ? std::string(run->get_string()) : std::string();
}

Error damaged(const fs::path& file, std::uint64_t at) {
    return invalid_input(file.string() + ": the line at byte " + std::to_string(at) +
                         " is not one of kept answers: remove the file, so that they are written again");
}

class KeptDecoder final : public EncodedAnswer::Decoder {
  public:
    KeptDecoder(std::shared_ptr<const KeptRollouts> kept, std::shared_ptr<const TokenBatch> tokens,
                std::uint32_t vocabulary)
        : kept_(std::move(kept)), tokens_(std::move(tokens)), vocabulary_(vocabulary) {}

    FetchResult<TeacherTargets> decode() override {
        const Result<KeptAnswers> kept = kept_->read(tokens_->number);
        if (!kept) {
            return FetchError{FailureKind::rejected, kept.error().message, std::nullopt};
        }
        bool fits = kept->rows == tokens_->row_ids;
        for (std::uint32_t row = 0; fits && row < kept->answers.size(); ++row) {
            const std::vector<std::int32_t>& answer = kept->answers[row].ids;
            const auto known = [this](std::int32_t id) {
                return id >= 0 && static_cast<std::uint32_t>(id) < vocabulary_;
            };
            fits = wants_answer(*tokens_, row) == !answer.empty() && std::ranges::all_of(answer, known) &&
                   static_cast<std::size_t>(tokens_->lengths[row]) + answer.size() <= std::size_t{tokens_->columns} + 1;
        }
        if (!fits) {
            return FetchError{FailureKind::rejected,
                              "the kept answers to micro-batch " + std::to_string(tokens_->number) +
                                  " are not to its prompts, or not of the student's tokens",
                              std::nullopt};
        }
        return targets_of(kept->answers, tokens_->lengths, tokens_->columns);
    }

  private:
    std::shared_ptr<const KeptRollouts> kept_;
    std::shared_ptr<const TokenBatch> tokens_;
    std::uint32_t vocabulary_;
};

}  // namespace

Result<std::unique_ptr<KeptRollouts>> KeptRollouts::open(fs::path file, const std::string& run,
                                                         const std::function<bool(const std::string& run)>& is_ours,
                                                         Guard guard) {
    std::unique_ptr<KeptRollouts> kept(new KeptRollouts(std::move(file), std::move(guard)));
    const Result<bool> ours = kept->load(is_ours);
    if (!ours) {
        return ours.error();
    }
    if (!*ours) {
        const std::string header = to_text(boost::json::object{{kRun, run}}) + "\n";
        kept->lines_.clear();
        kept->end_ = header.size();
        const Result<void> begun = kept->guard_([&] { return write_file_atomically(kept->file_, header); });
        if (!begun) {
            return begun.error();
        }
    }
    return kept;
}

Result<std::unique_ptr<KeptRollouts>> KeptRollouts::open_other(
    fs::path file, const std::function<Result<void>(const std::string& run)>& check) {
    std::unique_ptr<KeptRollouts> kept(new KeptRollouts(std::move(file), nullptr));
    Result<void> fits = invalid_input("it has no answers");
    const Result<bool> ours = kept->load([&](const std::string& run) {
        fits = check(run);
        return fits.has_value();
    });
    if (!ours) {
        return ours.error();
    }
    if (!fits) {
        return Error{fits.error().kind, kept->file_.string() + ": " + fits.error().message};
    }
    return kept;
}

/// False: there is no file of this run.
Result<bool> KeptRollouts::load(const std::function<bool(const std::string& run)>& is_ours) {
    std::error_code failed;
    if (!fs::exists(fs::symlink_status(file_, failed))) {
        return false;
    }
    const Result<Descriptor> opened = open_file(file_, O_RDONLY | O_NOFOLLOW);
    if (!opened) {
        return opened.error();
    }
    std::string line;
    std::string piece(kPiece, '\0');
    for (std::uint64_t at = 0;;) {
        const std::size_t count = read_at(opened->get(), std::as_writable_bytes(std::span(piece)), at);
        at += count;
        std::string_view rest(piece.data(), count);
        for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
            line += rest.substr(0, end + 1);
            rest.remove_prefix(end + 1);
            const bool first = end_ == 0;
            if (first && !is_ours(run_in(line))) {
                return false;
            }
            if (!first) {
                const auto number = number_of(line);
                if (!number) {
                    return damaged(file_, end_);
                }
                lines_[*number] = {end_, line.size()};
            }
            end_ += line.size();
            line.clear();
        }
        line += rest;
        if (line.size() > kMaxLine) {
            return damaged(file_, end_);
        }
        if (count < kPiece) {
            return end_ > 0;
        }
    }
}

bool KeptRollouts::has(std::uint64_t micro_batch) const {
    const std::lock_guard lock(mutex_);
    return lines_.contains(micro_batch);
}

std::uint64_t KeptRollouts::count() const {
    const std::lock_guard lock(mutex_);
    return lines_.size();
}

Result<KeptAnswers> KeptRollouts::read(std::uint64_t micro_batch) const {
    Line line;
    {
        const std::lock_guard lock(mutex_);
        line = lines_.at(micro_batch);
    }
    const Result<Descriptor> opened = open_file(file_, O_RDONLY | O_NOFOLLOW);
    if (!opened) {
        return opened.error();
    }
    std::string text(line.bytes, '\0');
    const auto bytes = std::as_writable_bytes(std::span(text));
    if (const Result<void> all = read_all_at(opened->get(), bytes, line.begin, file_); !all) {
        return all.error();
    }
    text.pop_back();  // the line break
    KeptAnswers kept;
    const auto value = parse_json_text(text, kMaxDepth);
    const JsonPlace place{file_.string() + ": byte " + std::to_string(line.begin), {}};
    const Result<void> good = value ? json_fields::read(*value, place, kept) : damaged(file_, line.begin);
    if (!good) {
        return good.error();
    }
    const bool whole =
        kept.answers.size() == kept.rows.size() && std::ranges::all_of(kept.answers, [](const Rollout& one) {
            return one.ids.size() == one.log_probabilities.size();
        });
    return whole ? Result<KeptAnswers>(std::move(kept)) : damaged(file_, line.begin);
}

Result<void> KeptRollouts::append(const std::vector<KeptAnswers>& answers) {
    std::string text;
    std::vector<std::pair<std::uint64_t, Line>> added;
    const std::lock_guard lock(mutex_);
    for (const KeptAnswers& one : answers) {
        if (!lines_.contains(one.micro_batch)) {
            const std::string line = to_text(json_fields::write(one)) + "\n";
            added.emplace_back(one.micro_batch, Line{end_ + text.size(), line.size()});
            text += line;
        }
    }
    if (text.empty()) {
        return {};
    }
    const Result<void> done = guard_([&]() -> Result<void> {
        const Result<Descriptor> opened = open_file(file_, O_WRONLY | O_NOFOLLOW);
        if (!opened) {
            return opened.error();
        }
        // What an interrupted write has left is overwritten.
        if (::ftruncate(opened->get(), static_cast<off_t>(end_)) != 0 ||
            ::lseek(opened->get(), static_cast<off_t>(end_), SEEK_SET) < 0) {
            return write_error(file_.string(), errno);
        }
        const Result<void> written = write_all(opened->get(), std::as_bytes(std::span(text)), file_);
        if (written && ::fdatasync(opened->get()) != 0) {
            return write_error(file_.string(), errno);
        }
        return written;
    });
    if (done) {
        end_ += text.size();
        lines_.insert(added.begin(), added.end());
    }
    return done;
}

EncodedAnswer kept_answer(std::shared_ptr<const KeptRollouts> kept, std::shared_ptr<const TokenBatch> tokens,
                          std::uint32_t vocabulary) {
    return {std::make_unique<KeptDecoder>(std::move(kept), std::move(tokens), vocabulary), 0};
}

}  // namespace distilld
