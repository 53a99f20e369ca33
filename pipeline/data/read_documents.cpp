#include "pipeline/data/read_documents.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/data/lines/line_blocks.hpp"
#include "pipeline/data/lines/ordered_blocks.hpp"

namespace distilld {

namespace {

using Files = std::span<const std::filesystem::path>;

/// Lines that wait for a thread, and documents that wait for their turn, take a small multiple of this.
constexpr std::size_t kMaxBytesUnderWay = 32U << 20;

/// Below this many bytes per thread, threads cost more than they save.
constexpr std::uint64_t kMinBytesOfThread = 1U << 20;

struct DocumentBlock {
    LineBlock lines;
    std::vector<Document> documents;  ///< of the lines; valid before a bad line
    std::size_t good = 0;
    std::optional<Error> bad_line;  ///< what is wrong with line `good`
};

void parse(DocumentParser& parser, Files files, DocumentBlock& block) {
    const std::size_t count = block.lines.lines.size();
    block.documents.resize(std::max(block.documents.size(), count));
    block.bad_line.reset();
    try {
        for (block.good = 0; block.good < count; ++block.good) {
            const std::string_view line = block.lines.text(block.lines.lines[block.good]);
            if (auto parsed = parser.parse(line, files[block.lines.file], block.documents[block.good]); !parsed) {
                block.bad_line = parsed.error();
                return;
            }
        }
    } catch (const ErrorException& of_tokenizer) {
        block.bad_line = of_tokenizer.error();
    }
}

class Reading {
  public:
    Reading(Files files, const Tokenizer* tokenizer, const DatasetOptions& options, const TakeDocument& take)
        : files_(files),
          options_(options),
          take_(take),
          lines_(files, options.max_line_bytes, kDocumentPadding),
          threads_(threads_for(lines_.total_bytes())) {
        for (std::size_t thread = 0; thread < threads_; ++thread) {
            parsers_.push_back(make_document_parser(tokenizer, options));
        }
    }

    Result<void> run() {
        if (threads_ == 1) {
            DocumentBlock block;
            while (lines_.next(block.lines)) {
                parse(*parsers_.front(), files_, block);
                if (!deliver(block)) {
                    break;
                }
            }
        } else {
            OrderedBlocks<DocumentBlock>(
                threads_, kMaxBytesUnderWay,
                {
                    [this](DocumentBlock& block) { return fill(block); },
                    [](const DocumentBlock& block) { return block.lines.bytes.size(); },
                    [this](std::size_t worker, DocumentBlock& block) { parse(*parsers_[worker], files_, block); },
                    [this](DocumentBlock& block) { return deliver(block); },
                })
                .run();
        }
        return result_;
    }

  private:
    [[nodiscard]] std::size_t threads_for(std::uint64_t bytes) const {
        const std::uint64_t useful = bytes / kMinBytesOfThread + 1;
        return static_cast<std::size_t>(std::clamp<std::uint64_t>(useful, 1, std::max(1U, options_.threads)));
    }

    /// Runs on the reading thread. An error ends the lines.
    bool fill(DocumentBlock& block) {
        if (failed_) {
            return false;
        }
        const bool more = lines_.next(block.lines);
        failed_ = more && block.lines.error.has_value();
        return more;
    }

    /// Runs on the calling thread. False on an error.
    bool deliver(DocumentBlock& block) {
        const LineBlock& lines = block.lines;
        for (std::size_t i = 0; i < block.good; ++i) {
            const LineBlock::Line& line = lines.lines[i];
            if (auto taken = take_(block.documents[i], number_, share_at(lines, line)); !taken) {
                return fail(at(lines, line, taken.error()));
            }
            ++number_;
            progress_.tokens += block.documents[i].ids.size();
        }
        if (block.bad_line) {
            return fail(at(lines, lines.lines[block.good], *block.bad_line));
        }
        if (lines.error) {
            return fail(*lines.error);
        }
        if (lines.bytes.size() > 4 * LineBlocks::kBlockBytes) {
            block.documents.clear();  // frees the memory of a long line's tokens
        }
        if (options_.on_progress) {
            progress_.share = lines.share_after;
            progress_.total_bytes = lines_.total_bytes();
            progress_.threads = threads_;
            if (!options_.on_progress(progress_)) {
                return fail({ErrorKind::cancelled, "reading was stopped on request"});
            }
        }
        return true;
    }

    bool fail(Error error) {
        result_ = std::move(error);
        return false;
    }

    static double share_at(const LineBlock& lines, const LineBlock::Line& line) {
        const double part = static_cast<double>(line.begin + line.length) / static_cast<double>(lines.bytes.size());
        return lines.share_before + part * (lines.share_after - lines.share_before);
    }

    [[nodiscard]] Error at(const LineBlock& lines, const LineBlock::Line& line, const Error& error) const {
        return {error.kind, files_[lines.file].string() + ":" + std::to_string(line.number) + ": " + error.message};
    }

    Files files_;
    const DatasetOptions& options_;
    const TakeDocument& take_;
    LineBlocks lines_;
    std::size_t threads_;
    std::vector<std::unique_ptr<DocumentParser>> parsers_;
    bool failed_ = false;  // used by the reading thread
    std::uint64_t number_ = 0;
    ReadingProgress progress_;
    Result<void> result_;
};

}  // namespace

Result<void> read_documents(Files files, const Tokenizer* tokenizer, const DatasetOptions& options,
                            const TakeDocument& take) {
    return Reading(files, tokenizer, options, take).run();
}

}  // namespace distilld
