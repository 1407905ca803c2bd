// The numbers by which tlm_shim.h names its operations to the runtime.
#pragma once

enum TlmShimShuffle { TLM_SHIM_INDEXED, TLM_SHIM_UP, TLM_SHIM_DOWN, TLM_SHIM_XOR };
enum TlmShimVote { TLM_SHIM_BALLOT, TLM_SHIM_ANY, TLM_SHIM_ALL, TLM_SHIM_SYNC };
enum TlmShimBarrier { TLM_SHIM_PLAIN, TLM_SHIM_COUNT, TLM_SHIM_AND, TLM_SHIM_OR };
enum TlmShimProduct { TLM_SHIM_K16_BF16, TLM_SHIM_K16_F16, TLM_SHIM_K8_BF16, TLM_SHIM_K8_F16, TLM_SHIM_K8_TF32, TLM_SHIM_K4_TF32 };
