#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"

namespace distilld {

/// Packs the documents of `documents` (a dataset with one per row, of at most `sequence_length` positions) side by side
/// into rows of `sequence_length` positions, kept apart: see pack_rows() and TokenBatch::documents. Documents are whole
/// and keep their labels. asked_about() is that of `documents`.
[[nodiscard]] std::shared_ptr<const Dataset> pack_documents(std::shared_ptr<const Dataset> documents,
                                                            std::uint32_t sequence_length);

/// The same for documents of several teachers: a row has documents of one teacher. Rows are in the order of their first
/// documents.
[[nodiscard]] std::shared_ptr<const MixedDataset> pack_documents(const MixedDataset& documents,
                                                                 std::uint32_t sequence_length);

}  // namespace distilld
