#include "pipeline/data/teacher_document.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "pipeline/data/teacher_tokenizer.hpp"

namespace distilld {

namespace {

/// The labels of tokens that follow another one.
std::span<const std::int32_t> following(const Document& document) {
    return std::span(document.labels).subspan(std::min<std::size_t>(1, document.labels.size()));
}

}  // namespace

bool align_with_teacher(Document& document) {
    if (!document.has_labels) {
        document.labels = document.ids;
        document.has_labels = true;
    }
    const bool had_target = has_target(following(document));
    const std::size_t most = std::min(document.ids.size(), document.teacher_ids.size());
    const auto differ = std::mismatch(document.ids.rbegin(), document.ids.rbegin() + static_cast<std::ptrdiff_t>(most),
                                      document.teacher_ids.rbegin());
    const auto common = static_cast<std::size_t>(differ.first - document.ids.rbegin());
    const std::size_t answered = std::min(common, most == 0 ? 0 : most - 1);
    std::fill_n(document.labels.begin(), document.ids.size() - answered, kIgnoredLabel);
    return !had_target || has_target(following(document));
}

Document teacher_document(const Document& document, std::size_t cut) {
    Document read;
    if (!document.teacher_labels.empty()) {
        read.ids = document.teacher_ids;
        read.labels = document.teacher_labels;
        read.has_labels = true;
        read.from_text = true;
        read.teacher = document.teacher;
        return read;
    }
    const std::size_t count = document.teacher_ids.size() - std::min(cut, document.teacher_ids.size());
    read.ids.assign(document.teacher_ids.begin(), document.teacher_ids.begin() + static_cast<std::ptrdiff_t>(count));
    read.labels.assign(count, kIgnoredLabel);
    read.has_labels = true;
    const std::size_t kept = document.labels.size() - std::min(cut, document.labels.size());
    const auto shared = static_cast<std::ptrdiff_t>(std::min(count, kept));
    const auto end = document.labels.begin() + static_cast<std::ptrdiff_t>(kept);
    std::copy(end - shared, end, read.labels.end() - shared);
    read.from_text = document.from_text;
    read.teacher = document.teacher;
    return read;
}

void align_tokenizers(Document& document, Document read, const DatasetOptions& options) {
    for (Document* one : {&document, &read}) {
        if (!one->has_labels) {
            one->labels = one->ids;
            one->has_labels = true;
        }
    }
    const bool cuts = options.overflow == Overflow::truncate;
    const auto tokens_of = [cuts](const Document& of, std::size_t row) {
        return cuts ? std::min(of.ids.size(), row + 1) : of.ids.size();
    };
    const std::size_t own = tokens_of(document, options.sequence_length);
    const std::size_t others = tokens_of(read, teacher_row_length(options));
    bool any = false;
    if (own > 1 && others > 1) {
        const auto partners = options.teacher_tokenizer->alignment->partners(std::span(document.ids).first(own - 1),
                                                                             std::span(read.ids).first(others - 1));
        for (std::size_t i = 0; i + 1 < own; ++i) {
            std::int32_t& label = document.labels[i + 1];
            const bool answered =
                partners[i] != kNoPartner && read.labels[static_cast<std::size_t>(partners[i]) + 1] != kIgnoredLabel;
            any = any || (answered && label != kIgnoredLabel);
            label = answered || options.keeps_labels ? label : kIgnoredLabel;
        }
    }
    if (!any) {
        document.ids.clear();
        document.labels.clear();
        return;
    }
    read.ids.resize(others);
    read.labels.resize(others);
    document.teacher_ids = std::move(read.ids);
    document.teacher_labels = std::move(read.labels);
}

}  // namespace distilld
