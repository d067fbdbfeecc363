/* =====================================================================================================================
 * >>text/answer: answers taken apart: content, thoughts, calls of tools, by tables of the marks that models write.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"

SPECDEC__FOR_SIZE

SPECDEC__FOR_SPEED
