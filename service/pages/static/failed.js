// The page of a session that cannot be shown: it can be deleted.
import { deleteForm } from "./api.js";

deleteForm();
